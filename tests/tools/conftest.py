import pytest_asyncio

from tests.tools.agent_server_process import started_agent_server
from tests.tools.tool_server_process import started_tool_server


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def tool_server(tmp_path_factory):
    """One tool server for all tests that leave it as it is; files of a test go to a directory of its own."""
    async with started_tool_server(tmp_path_factory.mktemp("tools")) as server:
        yield server


@pytest_asyncio.fixture
async def tools(tool_server):
    async with tool_server.client() as client:
        yield client


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def agent_server(tmp_path_factory):
    """One agent server for all tests that do not end it."""
    async with started_agent_server(tmp_path_factory.mktemp("agents")) as server:
        yield server
