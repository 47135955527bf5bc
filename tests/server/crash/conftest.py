import pytest

from tests.engine.engine_process import running_engine
from tests.server.crash.replicas import two_servers


@pytest.fixture(scope="session")
def engine():
    """Run an engine of these tests' own, since they compare all snapshots that it has."""
    with running_engine() as engine:
        yield engine


@pytest.fixture
async def replicas(database_url, sessions, engine):
    """Run two servers, and let one of them be killed."""
    async with two_servers(database_url, sessions, engine) as replicas:
        yield replicas
