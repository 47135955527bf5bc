import pytest

from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.deadlines import Rules
from tests.server.lifecycle.living import HOUR, MINUTE, living_at, new_living
from tests.server.lifecycle.serving import running_server


@pytest.fixture
async def living(sessions, backend_at):
    """Have a server look after a tenant's sandboxes at the engine."""
    return await new_living(sessions, backend_at())


@pytest.fixture
async def faulty(living, backend_at, proxy):
    """Have another server look after the same sandboxes, to which things happen on the way."""
    return living_at(living.sessions, backend_at(proxy.url), tenant_id=living.tenant_id)


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
def limited(living):
    """Look after the same sandboxes at a provider that lets none run longer than an hour."""
    return _limited(living)


@pytest.fixture
def limited_faulty(faulty):
    return _limited(faulty)


def _limited(server):
    rules = Rules(longest_run=HOUR, provider_timeout=40 * MINUTE)
    return living_at(server.sessions, server.backend, tenant_id=server.tenant_id, rules=rules)
