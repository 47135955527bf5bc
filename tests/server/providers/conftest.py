import pytest


@pytest.fixture
def backend(backend_at):
    return backend_at()


@pytest.fixture
def wanted(new_sandbox):
    return new_sandbox()
