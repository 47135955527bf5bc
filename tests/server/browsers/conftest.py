import pytest_asyncio

from tests.server.support.databases import new_database
from tests.server.support.full_server import inside, new_sandbox, serving_outside
from tests.server.support.request_recorder import start_recorder

CDP_PORT = 9222


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(bundled_url, engine, tmp_path_factory):
    """Run all of a server in this process, with a backend whose sandboxes have a browser."""
    backend = {"capabilities": {"base": ["browser"]}}
    state_dir = tmp_path_factory.mktemp("state")
    async with (
        new_database(bundled_url) as url,
        serving_outside(url, engine, state_dir=state_dir, backend=backend) as outside,
    ):
        yield outside


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    """Create a sandbox in which requests to the browser's port are recorded."""
    async with new_sandbox(outside) as sandbox_id:
        await start_recorder(await inside(outside, sandbox_id), CDP_PORT)
        yield sandbox_id
