import pytest

from tests.engine.engine_process import running_engine
from tests.server.tasks.acceptance.replicas import task_replicas


@pytest.fixture(scope="module")
def engine():
    """Run an engine of these tests' own, since they kill it."""
    with running_engine() as engine:
        yield engine


@pytest.fixture
async def replicas(database_url, sessions, engine, forge_world):
    """Run two servers, one of which may be killed."""
    async with task_replicas(database_url, sessions, engine, forge_world) as replicas:
        yield replicas
