import os
import time
from contextlib import contextmanager

import pytest
from e2b import Sandbox, Template

from tests.engine.process import ConnectionOptions, running_engine
from tests.template.computer import Computer
from tests.template.recipe import described, template

# An engine that has built the templates before builds them in seconds: "URL KEY".
_ENGINE = "IMAGE_PROOFS_ENGINE"


@pytest.fixture(scope="session")
def options():
    """Point the SDK at an engine that builds templates."""
    if _ENGINE in os.environ:
        url, key = os.environ[_ENGINE].split()
        yield ConnectionOptions(api_key=key, api_url=url, sandbox_url=url)
        return
    with running_engine() as engine:
        yield engine.options


def _build(name, options):
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
    return name


@pytest.fixture(scope="session")
def slim(options):
    """Build the template `agent`."""
    return _build("agent", options)


@pytest.fixture(scope="session")
def full(options):
    """Build the template `agent-full`."""
    return _build("agent-full", options)


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
