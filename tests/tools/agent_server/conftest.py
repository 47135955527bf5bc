import pytest_asyncio


@pytest_asyncio.fixture
async def client(agent_server):
    async with agent_server.client() as client:
        yield client
