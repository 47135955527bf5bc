import secrets

import pytest
from e2b import Sandbox, Template

from tests.engine.templates.building.build_client import Builds


@pytest.fixture(scope="module")
def builds(engine):
    """Build templates with the shared engine."""
    return Builds(engine)


@pytest.fixture
def begin():
    """Begin templates alike, whose steps no test before has had the engine remember."""
    mark = secrets.token_hex(8)
    return lambda: Template().from_base_image().set_envs({"TEST": mark})


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Make the directory that a module's templates copy from."""
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def first_sandbox(engine):
    """Start one sandbox of a template that stays for the module's tests."""
    opened = []

    def start(name):
        sandbox = Sandbox.create(name, timeout=600, **engine.options)
        opened.append(sandbox)
        return sandbox

    yield start
    for sandbox in opened:
        sandbox.kill()
