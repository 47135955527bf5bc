import pytest_asyncio

from tests.server.support.full_server import new_sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    """Create a sandbox with a server that records requests."""
    async with new_sandbox(outside) as sandbox_id:
        yield sandbox_id
