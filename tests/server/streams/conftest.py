import pytest

from tests.server.lifecycle.living import new_living
from tests.server.lifecycle.serving import running_server


@pytest.fixture
async def living(sessions, backend_at):
    """Have a server look after a tenant's sandboxes at the engine."""
    return await new_living(sessions, backend_at())


@pytest.fixture
async def server(database, living):
    """Run a server for one caller."""
    async with running_server(database, living) as server:
        yield server
