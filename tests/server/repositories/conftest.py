import pytest

from sandbox_server.repositories.service import Repositories
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import MemoryForge, MemoryForges, add_forge, add_tenant


@pytest.fixture
async def caller(sessions):
    return caller_of(await add_tenant(sessions))


@pytest.fixture
async def forge(sessions, forges, caller):
    made = MemoryForge()
    forges.adapters[await add_forge(sessions, caller.tenant_id)] = made
    return made


@pytest.fixture
def forges(sessions):
    return MemoryForges(sessions)


@pytest.fixture
def repositories(sessions, vault, forges, forge):
    return Repositories(sessions, vault, forges)
