import pytest
from pydantic import SecretStr

from sandbox_server.db.installation import InstallationRepository
from sandbox_server.domain.state import State
from sandbox_server.settings import Settings
from sandbox_server.supervisor.engine_note import EngineAddress
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.first_start import get_ready
from tests.server.support.sandbox_rows import add, backend, read, sandbox, tenant

OURS = EngineAddress(port=3400, api_key="ours")
OTHER = EngineAddress(port=3400, api_key="other")


@pytest.fixture
def settings(database_url, tmp_path):
    return Settings(database_url=SecretStr(database_url), state_dir=tmp_path)


@pytest.fixture
async def here(settings, sessions):
    """Give a sandbox at our engine, known as such."""
    await get_ready(settings, engine=OURS)
    here = sandbox(State.RUNNING)
    await add(sessions, tenant(), backend("local"), here)
    return here


async def test_first_start__an_engine_without_sandboxes_may_be_replaced(settings):
    await get_ready(settings, engine=OURS)
    await get_ready(settings, engine=OTHER)


async def test_first_start__another_engine_than_that_of_the_sandboxes_is_refused(settings, here):
    with pytest.raises(CannotServe, match="belong to another engine"):
        await get_ready(settings, engine=OTHER)
    await get_ready(settings, engine=OURS)


async def test_forget_engine__ends_only_the_sandboxes_of_the_lost_engine(settings, sessions, here):
    elsewhere = sandbox(State.RUNNING, candidates=["e2b"])
    await add(sessions, backend("e2b"), elsewhere)
    async with sessions.begin() as session:
        assert await InstallationRepository(session).forget_engine(backend="local") == 1
    await get_ready(settings, engine=OTHER)
    here, elsewhere = await read(sessions, here, elsewhere)
    assert (here.state, here.state_reason) == (State.FAILED, "Its engine was lost.")
    assert elsewhere.state is State.RUNNING
