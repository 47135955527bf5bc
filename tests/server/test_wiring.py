import asyncio

import pytest
from pydantic import SecretStr

from sandbox_server import wiring as assembly
from sandbox_server.db.notifications import Notifications
from sandbox_server.jobs.kinds import HOUSEKEEPING
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.settings import Settings
from sandbox_server.wiring import open_server
from tests.engine.polling import until

NOWHERE = BackendSettings(
    name="nowhere", api_key=SecretStr("e2b_0"), api_url="http://127.0.0.1:9", domain="localhost"
)


@pytest.fixture
def settings(database_url, tmp_path):
    return Settings(database_url=SecretStr(database_url), state_dir=tmp_path, backends=(NOWHERE,))


async def test_a_server_works_until_its_block_ends(settings):
    before = asyncio.all_tasks()
    async with open_server(settings) as server:
        assert list(server.components.backends) == ["nowhere"]

        async def has_kept_house():
            async with server.components.sessions() as session:
                return await JobRepository(session).find_next_due(kinds=[HOUSEKEEPING])

        await until(has_kept_house)
    assert asyncio.all_tasks() == before


async def test_what_fails_in_the_background_ends_the_server(settings, monkeypatch):
    class Deaf(Notifications):
        async def run(self):
            raise RuntimeError("it does not hear any more")

    monkeypatch.setattr(assembly, "Notifications", Deaf)
    with pytest.raises(ExceptionGroup) as failed:
        async with open_server(settings):
            await asyncio.Event().wait()
    assert failed.group_contains(RuntimeError, match="does not hear")


async def test_a_server_that_rests_gives_no_more_places(settings):
    async with open_server(settings) as server:
        async with asyncio.timeout(30):
            assert await server.shutdown_pauser.pause_all(within=settings.stop_timeout)
