import functools
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox, Template

from tests.engine.engine_process import ConnectionOptions, running_engine
from tests.server.support.server_process import server_process
from tests.template import models
from tests.template.computer import Computer
from tests.template.recipe import described, template
from tests.template.served import served_sandbox

# An engine that has built the templates before builds them in seconds: "URL KEY".
_ENGINE = "IMAGE_PROOFS_ENGINE"
# A directory for pictures of what was seen, where somebody wants to look at them.
_KEEP = "IMAGE_PROOFS_KEEP"


@pytest.fixture(scope="session")
def options():
    """Point the SDK at an engine that builds templates."""
    if _ENGINE in os.environ:
        url, key = os.environ[_ENGINE].split()
        yield ConnectionOptions(api_key=key, api_url=url, sandbox_url=url)
        return
    with running_engine() as engine:
        yield engine.options


def build(name, options):
    description = described()["templates"][name]
    began = time.monotonic()
    Template.build(
        template(name),
        name,
        cpu_count=description["cpu_count"],
        memory_mb=description["memory_mb"],
        on_build_logs=lambda entry: print(f"{time.monotonic() - began:5.0f} s", entry.message),
        **options,
    )
    print(f"{name}: built in {time.monotonic() - began:.0f} s")
    return name


@pytest.fixture(scope="session")
def built(options):
    """Build templates by name, each once."""
    return functools.cache(lambda name: build(name, options))


@pytest.fixture(scope="session")
def slim(built):
    """Build the template `agent`."""
    return built("agent")


@pytest.fixture(scope="session")
def full(built):
    """Build the template `agent-full`."""
    return built("agent-full")


@pytest.fixture(scope="session")
def with_desktop(built):
    """Build the template `desktop`."""
    return built("desktop")


@pytest.fixture(scope="session")
def with_office(with_desktop, built):
    """Build the template `desktop-office`."""
    return built("desktop-office")


@pytest.fixture(scope="session")
def with_code(built):
    """Build the template `code-interpreter-v1`."""
    return built("code-interpreter-v1")


@pytest.fixture(scope="session")
def with_all_code(with_code, built):
    """Build the template `code-interpreter-full`."""
    return built("code-interpreter-full")


@pytest.fixture(scope="session")
def computer_of(options):
    """Start sandboxes of templates."""

    @contextmanager
    def start(name):
        with Sandbox.create(name, timeout=3600, **options) as sandbox:
            yield Computer(sandbox, options)

    return start


@pytest.fixture(scope="session")
def slim_computer(slim, computer_of):
    with computer_of(slim) as computer:
        yield computer


@pytest.fixture(scope="session")
def computer(full, computer_of):
    """One sandbox of `agent-full` for all tests that leave it as it is."""
    with computer_of(full) as computer:
        computer.settle()
        yield computer


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Name the directory where pictures are put."""
    if _KEEP not in os.environ:
        return tmp_path_factory.mktemp("pictures")
    directory = Path(os.environ[_KEEP]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def server(full, options):
    """Run a server as users have it, whose provider is the engine that has built the template."""
    variables = {f"E2B_{name.upper()}": value for name, value in options.items()}
    with server_process(variables=variables) as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def served(server, full):
    """Have the server make a sandbox of `agent-full`, whose agents have a model on its loopback."""
    with served_sandbox(server, template=full, timeout_s=7200, envs=models.ENVS) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def workplace(served):
    """Run the model in the served sandbox, and lead the agents there to it."""
    served.write("/tmp/model_endpoint.py", models.PROGRAM.read_text())
    # Nothing that the server started, for which it would hold the sandbox for being in use.
    served.run(f"tmux -L model new-session -d 'python /tmp/model_endpoint.py {models.PORT}'")
    settings = served.run(f"cat {models.CODEX_SETTINGS}")
    served.write(models.CODEX_SETTINGS, models.with_model(settings))
    served.run(models.OWN_KEY_FOR_GEMINI)
    served.wait(f"curl --silent {models.URL}")
    return served
