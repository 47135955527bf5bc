import pytest

from sandbox_server.db.session import create_engine, create_sessions
from tests.server.lifecycle.living import living_at, new_living
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


@pytest.fixture
async def replica(database_url, backend_at, living):
    """Run a second server on the same database, with connections of its own."""
    engine = create_engine(database_url)
    other = living_at(create_sessions(engine), backend_at(), tenant_id=living.tenant_id)
    async with running_server(engine, other) as server:
        yield server
    await engine.dispose()


@pytest.fixture
async def sandbox_id(server):
    return (await server.running()).id
