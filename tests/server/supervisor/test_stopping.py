"""What a stop does to sandboxes, and what the next start finds."""

import os
import shutil
import signal

import pytest

from tests.engine.polling import until
from tests.server.support.server_process import server_process, variables_of

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def started():
    """Start a server with an engine of its own."""
    with server_process() as server:
        server.start()
        yield server


async def create(server):
    async with server.client() as admin:
        created = await admin.post("/v1/sandboxes", json={})
    assert created.status_code == 201, created.text
    return created.json()["id"]


async def read(server, sandbox_id):
    async with server.client() as admin:
        return (await admin.get(f"/v1/sandboxes/{sandbox_id}")).json()


async def run(server, sandbox_id, command):
    async with server.client() as admin:
        answer = await admin.post(
            "/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": command}
        )
    assert answer.status_code == 200, answer.text
    return answer.json()["output"]


async def test_stop__pauses_running_sandboxes_and_the_next_use_resumes_them(started):
    sandbox_id = await create(started)
    await run(started, sandbox_id, "nohup sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid")
    assert started.stop() == 0
    started.start()
    found = await read(started, sandbox_id)
    assert found["state"] == "paused"
    assert found["state_reason"].startswith("Paused because the server is stopping")
    assert await run(started, sandbox_id, "kill -0 $(cat /tmp/pid) && echo alive") == "alive\n"
    assert (await read(started, sandbox_id))["state"] == "running"


async def test_crash__running_sandboxes_run_on(started):
    sandbox_id = await create(started)
    started.kill()
    started.start()
    assert (await read(started, sandbox_id))["state"] == "running"
    assert await run(started, sandbox_id, "echo alive") == "alive\n"


@pytest.mark.slow  # a crash needs an engine of its own
async def test_crash__a_crashed_engine_returns_with_its_sandboxes(started):
    sandbox_id = await create(started)
    os.kill(started.engine_pid, signal.SIGKILL)

    async def answers():
        async with started.client() as admin:
            body = {"sandbox_id": sandbox_id, "command": "echo alive"}
            return (await admin.post("/sandboxes/run-command", json=body)).status_code == 200

    await until(answers, timeout=60)
    assert (await read(started, sandbox_id))["state"] == "running"


async def test_log__contains_no_secrets(started):
    async with started.client() as admin:
        body = {"envs": {"TOKEN": "hunter2"}, "metadata": {"a": "b"}}
        created = await admin.post("/v1/sandboxes", json=body)
        made = (await admin.post("/v1/keys", json={"tenant": "default"})).json()
        await admin.get(f"/v1/sandboxes/{created.json()['id']}?ticket=hunter3")
        await admin.post("/v1/sandboxes", json={"envs": {"TOKEN": ["hunter2"]}})
        await admin.delete(f"/v1/sandboxes/{created.json()['id']}")
    os.kill(started.engine_pid, signal.SIGKILL)  # so that calls to it fail
    async with started.client() as admin:
        await admin.post("/v1/sandboxes", params={"wait": 1}, json={"envs": {"TOKEN": "hunter2"}})
    engine_key = (started.engine_dir / "api.key").read_text().strip()
    database_password = (started.state_dir / "postgres" / "password").read_text()
    started.stop()
    log = started.log
    assert "POST /v1/sandboxes status=201" in log
    known = [started.admin_key, made["secret"], engine_key, database_password]
    assert [secret for secret in (*known, "hunter2", "hunter3") if secret in log] == []


@pytest.mark.slow  # two servers of its own
async def test_stop__leaves_sandboxes_running_with_a_shared_database(database_url):
    with server_process(variables={"DATABASE_URL": database_url}) as server:
        server.start()
        sandbox_id = await create(server)
        assert server.stop() == 0
        os.kill(server.engine_pid, 0)  # it goes on, with all that runs
        server.start()
        assert (await read(server, sandbox_id))["state"] == "running"
        assert await run(server, sandbox_id, "echo alive") == "alive\n"


async def test_shared_database__servers_share_everything(database_url, engine):
    variables = variables_of(engine, database_url)
    with server_process(variables=variables) as first, server_process(variables=variables) as other:
        first.start()
        other.start()
        assert not (other.state_dir / "admin.key").exists()  # there is one already
        sandbox_id = await create(first)
        assert first.stop() == 0
        shutil.copy(first.state_dir / "admin.key", other.state_dir)
        assert (await read(other, sandbox_id))["state"] == "running"
        assert await run(other, sandbox_id, "echo alive") == "alive\n"
        async with other.client() as admin:
            assert (await admin.delete(f"/v1/sandboxes/{sandbox_id}")).status_code == 204
