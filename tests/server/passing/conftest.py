import pytest
import pytest_asyncio

from tests.server.databases import BUNDLED, new_database
from tests.server.passing.outside import new_sandbox, serving_outside


@pytest.fixture(scope="module")
def database_server(servers):
    return servers.url(BUNDLED)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(database_server, engine, tmp_path_factory):
    """Run a server for all tests of a module."""
    state_dir = tmp_path_factory.mktemp("state")
    async with (
        new_database(database_server) as url,
        serving_outside(url, engine, state_dir=state_dir) as outside,
    ):
        yield outside


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    """Have a sandbox with a recorder in it."""
    async with new_sandbox(outside) as sandbox_id:
        yield sandbox_id
