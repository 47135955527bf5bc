import pytest

from tests.server.crash.replicas import two_servers


@pytest.fixture
async def replicas(database_url, sessions, engine):
    """Run two servers, and let one of them be killed."""
    async with two_servers(database_url, sessions, engine) as replicas:
        yield replicas
