import json

import pytest
import pytest_asyncio

from tests.server.reference.example_calls import STAND_INS
from tests.server.support.databases import new_database
from tests.server.support.full_server import inside, serving_outside

PROGRAM = STAND_INS / "desktop.py"
PORT = 49990


async def start_desktop(outside, sandbox_id):
    """Start the test's desktop service in a sandbox."""
    sandbox = await inside(outside, sandbox_id)
    await sandbox.files.write("/home/user/desktop.py", PROGRAM.read_text())
    await sandbox.commands.run(f"python3 desktop.py {PORT}", background=True, timeout=0)
    await sandbox.commands.run(
        f"until (echo >/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null; do sleep 0.05; done"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(outside):
    async with outside.api() as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def make_sandbox(outside, api):
    """Create sandboxes with a desktop service; returns their ids."""
    made = []

    async def make(*, with_desktop=True, **fields):
        answer = await api.post("/v1/sandboxes", json=fields)
        assert answer.status_code == 201, answer.text
        made.append(sandbox_id := answer.json()["id"])
        if with_desktop:
            await start_desktop(outside, sandbox_id)
        return sandbox_id

    yield make
    for sandbox_id in made:
        await api.delete(f"/v1/sandboxes/{sandbox_id}")


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_id(make_sandbox):
    return await make_sandbox()


@pytest.fixture
def desktop_log(outside):
    """Read what the desktop service in a sandbox was asked."""

    async def read(sandbox_id):
        sandbox = await inside(outside, sandbox_id)
        code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{PORT}/log').read().decode())"
        ran = await sandbox.commands.run(f'python3 -c "{code}"')
        return json.loads(ran.stdout)["log"]

    return read


@pytest.fixture
def events_of(api):
    """List the events of a sandbox's desktop, oldest first."""

    async def read(sandbox_id):
        answer = await api.get(f"/v1/sandboxes/{sandbox_id}/events", params={"type": "desktop."})
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    return read


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(bundled_url, engine, tmp_path_factory):
    """Run a server whose people lose control three seconds after they have left."""
    state_dir = tmp_path_factory.mktemp("state")
    async with (
        new_database(bundled_url) as url,
        serving_outside(url, engine, state_dir=state_dir, desktop_grace_s=3) as outside,
    ):
        yield outside
