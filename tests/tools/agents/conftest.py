import pytest_asyncio

from tests.tools.agents.serving import started_agent_server


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def agent_server(tmp_path_factory):
    """One agent server for all tests that do not end it."""
    async with started_agent_server(tmp_path_factory.mktemp("agents")) as server:
        yield server


@pytest_asyncio.fixture
async def client(agent_server):
    async with agent_server.client() as client:
        yield client
