import pytest

from sandbox_server.domain.errors import ForgeUnavailable
from sandbox_server.git.lfs.fetching import LargeFileFetcher
from sandbox_server.git.lfs.forge import ForgeLargeFiles
from sandbox_server.git.lfs.server import LfsServer
from sandbox_server.tasks.large_files.service import TaskLargeFiles
from tests.server.support.full_server import serving_outside
from tests.server.tasks.support.pushed_forge import pushed_forge_at
from tests.server.tasks.support.task_client import TaskClient


@pytest.fixture
def server_settings():
    """Change settings of the server."""
    return {}


@pytest.fixture
async def serving(database_url, engine, tmp_path, forge_world, server_settings):
    """Run a whole server in this process, which may reach the forge."""
    (tmp_path / "state").mkdir()
    own = {"state_dir": tmp_path / "state", "forge_hosts": forge_world.hosts}
    async with serving_outside(database_url, engine, **own, **server_settings) as outside:
        yield outside


@pytest.fixture
async def tasks(serving, forge_world):
    """Call the API of a server that knows the forge, as the App that is installed in it."""
    async with serving.api() as api:
        client = TaskClient(api, serving.components)
        await client.put_forge(**forge_world.app)
        yield client
        await client.cancel_all()


@pytest.fixture
def pushed_forge(tmp_path):
    with pushed_forge_at(tmp_path / "forge") as forge:
        yield forge


@pytest.fixture
async def pushed_tasks(database_url, engine, tmp_path, pushed_forge):
    """Call the API of a server whose forges are reached by git only."""
    (tmp_path / "state").mkdir()
    hosts = (pushed_forge.server.url,)
    async with (
        serving_outside(
            database_url, engine, state_dir=tmp_path / "state", forge_hosts=hosts
        ) as serving,
        serving.api() as api,
    ):
        client = TaskClient(api, serving.components)
        yield client
        await client.cancel_all()


@pytest.fixture
def large_files(sessions, vault):
    """Keep large files of tasks whose forges are not reached."""

    async def credentials(_repository, _access):
        raise ForgeUnavailable("git", "no answer")

    server = LfsServer()
    fetcher = LargeFileFetcher(server, credentials, limit=0)
    return TaskLargeFiles(sessions, vault, ForgeLargeFiles(server, credentials), fetcher)
