import asyncio
from dataclasses import replace
from typing import cast

import pytest
from pydantic import SecretStr

from sandbox_server import wiring
from sandbox_server.db.notifications import Notifications
from sandbox_server.files.tree import FileTree
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


async def test_open_server__runs_jobs_until_the_block_ends(settings):
    before = asyncio.all_tasks()
    async with open_server(settings) as server:
        assert list(server.components.backends) == ["nowhere"]

        async def has_kept_house():
            async with server.components.sessions() as session:
                return await JobRepository(session).find_next_due(kinds=[HOUSEKEEPING])

        await until(has_kept_house)
    assert asyncio.all_tasks() == before


async def test_open_server__a_failed_background_task_ends_the_server(settings, monkeypatch):
    class Deaf(Notifications):
        async def run(self):
            raise RuntimeError("it does not hear any more")

    monkeypatch.setattr(wiring, "Notifications", Deaf)
    with pytest.raises(ExceptionGroup) as failed:
        async with open_server(settings):
            await asyncio.Event().wait()
    assert failed.group_contains(RuntimeError, match="does not hear")


async def test_shutdown_pauser__is_done_at_once_without_sandboxes(settings):
    async with open_server(settings) as server:
        async with asyncio.timeout(30):
            assert await server.shutdown_pauser.pause_all(within=settings.stop_timeout)


async def test_components__two_of_one_type_are_refused(settings):
    async with open_server(settings) as server:
        components = server.components
        assert components.by_type()[type(components.tree)] is components.tree
        with pytest.raises(TypeError, match="tree: a component of type FileContents"):
            replace(components, tree=cast("FileTree", components.contents)).by_type()
