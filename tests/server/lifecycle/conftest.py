import pytest

from tests.server.lifecycle.living import living_at, new_living


@pytest.fixture
async def living(sessions, backend_at):
    """Have a server look after a tenant's sandboxes at the engine."""
    return await new_living(sessions, backend_at())


@pytest.fixture
async def faulty(living, backend_at, proxy):
    """Have another server look after the same sandboxes, to which things happen on the way."""
    return living_at(living.sessions, backend_at(proxy.url), tenant_id=living.tenant_id)
