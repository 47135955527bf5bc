.DEFAULT_GOAL := help
.PHONY: help install run check test proofs image-proofs image-test release-test lint lint-style lint-types lint-imports lint-structure lint-client lint-web web web-dev format bench compat schema-proofs examples openapi docs clean

PYTHON := .venv/bin/python

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Set up .venv and the system packages; run and test do it by themselves
	@scripts/install

run: install ## Start the server with its database and the engine; ARGS are its flags
	@scripts/run $(ARGS)

check: lint ## Check the code, and run the tests that need neither root nor the engine; ARGS are pytest's
	@scripts/web test
	@$(PYTHON) scripts/test check $(ARGS)

test: install ## Run the tests; as root also those that need the engine; ARGS are pytest's
	@scripts/test-programs
	@$(PYTHON) scripts/test test $(ARGS)

proofs: install ## Run the tests that take minutes, build the templates and the container images (as root)
	@scripts/test-programs slow
	@$(PYTHON) scripts/test proofs $(ARGS)
	@$(PYTHON) scripts/test image-proofs $(ARGS)
	@scripts/image-test $(ARGS)

image-proofs: install ## Build the templates on the engine and try what is in them (as root)
	@scripts/test-programs
	@$(PYTHON) scripts/test image-proofs $(ARGS)

image-test: install ## Build our images and try docker-compose.yml with podman (as root)
	@scripts/image-test $(ARGS)

release-test: install ## Install the wheel into an empty environment and serve from it (as root)
	@$(PYTHON) scripts/test release-test $(ARGS)

lint: install ## Check style, types and the direction of imports
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint-types lint-style lint-imports lint-structure lint-client lint-web

lint-style:
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check

lint-types:
	@$(PYTHON) -m mypy

lint-imports:
	@$(PYTHON) .venv/bin/lint-imports --no-logo

lint-structure:
	@$(PYTHON) scripts/structure

lint-client:
	@$(PYTHON) scripts/unasync --check

lint-web:
	@scripts/web lint

web: install ## Build the web interface; the server serves it at /ui/
	@scripts/web

web-dev: install ## Serve the web interface while it is edited, with the API of the server at SANDBOX_SERVER_URL
	@scripts/web dev

format: install ## Rewrite the code in the project's style
	@$(PYTHON) -m ruff check --fix
	@$(PYTHON) -m ruff format

bench: install ## Measure us against the bare runtime, the SDK, other queues (as root); ARGS name parts
	@$(PYTHON) -m benchmarks $(ARGS)

compat: install ## Try every method of several E2B SDKs and write docs/e2b-compatibility.md (as root)
	@$(PYTHON) -m compatibility $(ARGS)

schema-proofs: install ## Ask a server for minutes what its description allows, and what not (as root); SCHEMA_PROOF_S, SCHEMA_PROOF_SEED
	@$(PYTHON) -m pytest -m slow tests/server/reference/test_answers.py $(ARGS)

examples: install ## Run the examples of docs/api.md and record what is answered to them (as root)
	@RECORD_EXAMPLES=1 $(PYTHON) -m pytest tests/server/reference/test_examples.py -k documented_response $(ARGS)
	@$(PYTHON) -m reference

openapi: install ## Write docs/openapi.json and docs/api.md anew, after a change of the API
	@$(PYTHON) -m reference

docs: openapi ## Write all of the documents that is written from the code
	@$(PYTHON) scripts/settings-tables

clean: ## Remove what install and the tools made here
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
