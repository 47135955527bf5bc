import pytest_asyncio

from tests.server.support.full_server import new_sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    """Have a sandbox with a recorder in it."""
    async with new_sandbox(outside) as sandbox_id:
        yield sandbox_id
