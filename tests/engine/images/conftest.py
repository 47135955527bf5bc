import pytest

from tests.engine.images.base_images import bases_in
from tests.engine.images.local_registry import LOGIN, running_registry


@pytest.fixture(scope="module")
def registry():
    """Run a registry that serves everybody."""
    with running_registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def locked_registry():
    """Run a registry that serves nobody but alice."""
    with running_registry(login=LOGIN) as registry:
        yield registry


@pytest.fixture
def bases(tmp_path, registry):
    """Keep bases in a directory of the test's own."""
    return bases_in(tmp_path / "images", insecure=registry.address)


@pytest.fixture
def said():
    """Take down what is said while a base is made."""
    return []
