"""The forge's credentials are never in a sandbox, in logs, in rows or in answers, and git works inside nevertheless."""

import asyncio
import re
from contextlib import suppress

import httpx
import pytest

from sandbox_server.db.models import Sandbox
from tests.server.tasks.acceptance.canary import (
    SandboxProcesses,
    forms_of,
    rows_with,
    watching_arguments,
)
from tests.server.tasks.acceptance.replicas import PATIENCE_S

pytestmark = [pytest.mark.needs_engine, pytest.mark.slow, pytest.mark.timeout(600)]

PLANTED = "planted-by-the-test-7d1f"
HOLD = "touch /tmp/{0}; until [ -e /tmp/{0}-go ]; do sleep 0.1; done"
AGENT = f"""
export PLANTED={PLANTED}; echo {PLANTED} >planted.txt; git add . && git commit -qm 'feat: plant'
git fetch origin && git push origin "HEAD:$TASK_BRANCH" >/tmp/push.txt 2>&1; echo "exit $?" >>/tmp/push.txt
sh -c '{HOLD.format("working")}; : {PLANTED}'
rm planted.txt && echo two >>README.md && git commit -qam 'feat: write'"""
SETTINGS = {"setup": HOLD.format("setup"), "checks": HOLD.format("checking")}
PAGES = (
    *("/v1/forges", "/v1/forges/forge", "/v1/repositories", "/v1/tasks", "/v1/events"),
    *("/v1/sandboxes", "/v1/deliveries", "/metrics", "/v1/tasks/overlaps"),
)
OF_TASK = ("", "/runs", "/messages", "/saves", "/diff", "/log", "/checks", "/pull-request")


@pytest.fixture
def answers(replicas):
    """Keep all that the API answers."""
    kept = []

    async def keep(response):
        if "event-stream" not in response.headers.get("content-type", ""):
            kept.append(f"{response.headers}{(await response.aread()).decode(errors='replace')}")

    replicas.tasks.api.event_hooks["response"].append(keep)
    return kept


async def _processes(replicas, task):
    row = await replicas.row(task["id"])
    async with replicas.sessions() as session:
        sandbox = await session.get_one(Sandbox, row.sandbox_id)
    record = replicas.engine.state_dir / "sandboxes" / sandbox.backend_sandbox_id / "record.json"
    found = re.search(r'"pid":(\d+)', record.read_text())
    assert found
    return SandboxProcesses(int(found[1]))


async def _held(replicas, task, stage):
    """Wait until the sandbox is held at a stage."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            row = await replicas.row(task["id"])
            path = f"/v1/sandboxes/{row.sandbox_id}/files/content"
            if (
                row.sandbox_id
                and (
                    await replicas.tasks.api.get(path, params={"path": f"/tmp/{stage}"})
                ).is_success
            ):
                return row.sandbox_id
            await asyncio.sleep(0.2)


async def _let_go(replicas, sandbox_id, stage):
    body = {"sandbox_id": sandbox_id, "command": f"touch /tmp/{stage}-go"}
    await replicas.tasks.post("/sandboxes/run-command", json=body)


def _secrets(world):
    app = world.app
    return [*world.github.credentials(), app["private_key"], app["webhook_secret"]]


async def _crawl(replicas, task):
    """Ask for everything that the API tells of a task."""
    api = replicas.tasks.api
    for page in (*PAGES, *(f"/v1/tasks/{task['id']}{part}" for part in OF_TASK)):
        await api.get(page)
    for run in await replicas.tasks.items(task["id"], "runs"):
        command = f"/v1/sandboxes/{run['sandbox_id']}/commands/{run['command_id']}"
        await api.get(command)
        await api.get(f"{command}/output")


async def _read_stream(replicas, task):
    """Read the log of a task as it is streamed."""
    told = ""
    path, headers = f"/v1/tasks/{task['id']}/log", {"Accept": "text/event-stream"}
    with suppress(TimeoutError, httpx.HTTPError):
        async with (
            asyncio.timeout(5),
            replicas.tasks.api.stream("GET", path, headers=headers) as stream,
        ):
            async for part in stream.aiter_text():
                told += part
    return told


@pytest.mark.parametrize("kind", ["app", "token"])
async def test_canary__no_credential_of_the_forge_leaves_the_server(replicas, answers, kind):
    world, tasks = replicas.world, replicas.tasks
    (replicas.engine.state_dir / "git-server").write_text(replicas.servers[0].url)
    await tasks.put_forge(**getattr(world, kind))
    await tasks.add_repository(**SETTINGS)
    with watching_arguments() as arguments:
        task = await tasks.create(AGENT)
        for stage in ("setup", "working", "checking"):
            sandbox_id = await _held(replicas, task, stage)
            processes = await _processes(replicas, task)
            if stage == "working":
                pushed = await tasks.read_file(sandbox_id, "/tmp/push.txt")
                planted = await asyncio.to_thread(processes.find, [PLANTED.encode()])
                assert all(planted.values()), planted  # the search finds what is there
            found = await asyncio.to_thread(processes.find, forms_of(_secrets(world)))
            assert not any(found.values()), (stage, found)
            await _let_go(replicas, sandbox_id, stage)
        done = await tasks.until(task["id"], "in-review", timeout=PATIENCE_S)
    assert "exit 0" in pushed, pushed
    await _crawl(replicas, done)
    told = await _read_stream(replicas, done)
    forms = forms_of(_secrets(world))
    assert len(forms) > 2
    logs = "\n".join([*(server.log for server in replicas.servers), replicas.engine.log])
    for where, content in (("logs", logs), ("answers", "\n".join(answers)), ("stream", told)):
        assert not [form for form in forms if form in content.encode()], where
    assert "task.stage" in told
    assert any(b"\0push\0" in one for one in arguments.seen)
    assert not arguments.find(forms)
    assert await rows_with(replicas.sessions, [done["id"].encode()])
    assert await rows_with(replicas.sessions, forms) == []
