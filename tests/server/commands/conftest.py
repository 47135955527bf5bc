import pytest


@pytest.fixture
async def sandbox_id(server):
    return (await server.running()).id
