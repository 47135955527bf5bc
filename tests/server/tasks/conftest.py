import pytest

from tests.server.support.full_server import serving_outside
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
