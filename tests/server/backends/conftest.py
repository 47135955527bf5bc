import secrets
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.backends.provider import NewSandbox


@pytest.fixture
def options(engine):
    """Point the bare SDK at the engine."""
    return engine.options


@pytest.fixture
def backend(backend_at):
    return backend_at()


@pytest.fixture
def new_sandbox():
    """Describe sandboxes with ids of their own."""

    def describe(**fields):
        plain = NewSandbox(
            sandbox_id=secrets.token_hex(10),
            tenant_id="tenant",
            template="base",
            timeout=timedelta(minutes=5),
        )
        return replace(plain, **fields)

    return describe


@pytest.fixture
def wanted(new_sandbox):
    return new_sandbox()
