"""Paused sandboxes that traffic and SDK calls resume, through the unmodified SDK."""

import asyncio
import contextlib
import os
import signal
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import websockets
from e2b import (
    AsyncSandbox,
    Sandbox,
    SandboxLifecycle,
    SandboxNotRunningException,
    SandboxState,
)

from tests.engine.bare_container import keeper_pid
from tests.engine.engine_process import REPOSITORY
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

GUESTS = REPOSITORY / "tests/engine/guests"
SERVERS = {"request_reporter.py": 8000, "echo_server.py": 8100}
AWAIT_SERVERS = "until [ $(ss -Hltn | grep -c ':8[01]00 ') = 2 ]; do sleep 0.02; done"
WAKEABLE: SandboxLifecycle = {"on_timeout": "pause", "auto_resume": True}
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def serving(engine):
    """Create a sandbox that traffic may wake, with servers in it."""
    with Sandbox.create(timeout=900, lifecycle=WAKEABLE, **engine.options) as sandbox:
        for script, port in SERVERS.items():
            sandbox.files.write(script, (GUESTS / script).read_text())
            serve = f"python3 {script} 0.0.0.0 {port}"
            sandbox.commands.run(serve, background=True, timeout=0)
        sandbox.commands.run(AWAIT_SERVERS)
        yield sandbox


@pytest.fixture
async def paused(serving, engine):
    """Pause that sandbox."""
    sandbox = await AsyncSandbox.connect(serving.sandbox_id, **engine.options)
    await sandbox.pause()
    return sandbox


@pytest.fixture
async def port(engine, serving):
    """Make a client for the HTTP server in that sandbox."""
    host = f"8000-{serving.sandbox_id}.localhost:{engine.port}"
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=engine.url, headers={"Host": host}, timeout=60, limits=limits
    ) as client:
        yield client


@pytest.fixture
async def envd(engine, serving):
    """Make a client for E2B's daemon in that sandbox that has no token."""
    host = f"49983-{serving.sandbox_id}.localhost:{engine.port}"
    async with httpx.AsyncClient(base_url=engine.url, headers={"Host": host}, timeout=60) as client:
        yield client


async def test_auto_resume__command_resumes_a_paused_sandbox(paused):
    assert (await paused.commands.run("echo awake")).stdout == "awake\n"
    assert not await _is_paused(paused)


async def test_auto_resume__file_request_resumes_a_paused_sandbox(paused):
    await paused.files.write("note", "written to a sleeper")
    await paused.pause()
    assert await paused.files.read("note") == "written to a sleeper"
    await paused.pause()
    assert "note" in [entry.name for entry in await paused.files.list("/home/user")]


async def test_auto_resume__fifty_concurrent_requests_are_answered(paused, port):
    answers = await asyncio.gather(*(port.get(f"/{number}") for number in range(50)))
    assert [answer.json()["path"] for answer in answers] == [f"/{number}" for number in range(50)]


async def test_auto_resume__fifty_concurrent_calls_start_it_once(options, engine):
    async with await AsyncSandbox.create(lifecycle=WAKEABLE, **options) as sandbox:
        await sandbox.files.write("note", "kept")
        await _end_processes(engine, sandbox)
        notes = await asyncio.gather(*(sandbox.files.read("note") for _ in range(50)))
        assert set(notes) == {"kept"}
        assert await _log(engine, sandbox) == [
            "created",
            "init process ended",
            "resumed from its files",
        ]


async def test_auto_resume__request_during_a_pause_resumes_after_it(options, engine):
    async with await AsyncSandbox.create(lifecycle=WAKEABLE, **options) as sandbox:
        await sandbox.files.write("note", "kept")
        before = len(list(_commands(engine)))
        with _stopped_keeper(engine):  # it holds up the start of a command, which holds up a pause
            starting = asyncio.create_task(sandbox.commands.run("sleep 600", timeout=0))
            await until(lambda: _has_commands(engine, more_than=before))
            pausing = asyncio.create_task(sandbox.pause())
            reading = await _first_to_wait(lambda: sandbox.files.read("note"))
        assert await pausing
        assert await reading == "kept"
        assert not await _is_paused(sandbox)
        starting.cancel()


async def test_auto_resume__body_sent_during_the_resume_arrives_complete(paused, port):
    async def pieces():
        for _ in range(8):
            yield bytes(1 << 20)
            await asyncio.sleep(0)

    headers = {"Content-Length": str(8 << 20)}
    told = (await port.post("/", content=pieces(), headers=headers)).json()
    assert told["received"] == str(8 << 20)


async def test_auto_resume__websocket_resumes_a_paused_sandbox(paused, engine):
    url = f"ws://{paused.get_host(8100)}/"
    async with websockets.connect(url, host="127.0.0.1", port=engine.port) as websocket:
        await websocket.send("good morning")
        assert await websocket.recv() == "good morning"


@pytest.mark.parametrize(("timeout", "awake"), [(60, 300), (900, 900)])
async def test_auto_resume__timeout_is_the_original_one_or_five_minutes(options, timeout, awake):
    created = await AsyncSandbox.create(timeout=timeout, lifecycle=WAKEABLE, **options)
    async with created as sandbox:
        await sandbox.pause()
        await sandbox.commands.run("true")
        info = await sandbox.get_info()
        assert info.end_at - info.started_at == timedelta(seconds=awake)


async def test_auto_resume__health_check_does_not_resume(paused):
    assert not await paused.is_running()
    assert await _is_paused(paused)


async def test_auto_resume__missing_or_wrong_token_does_not_resume(paused, envd):
    for headers in ({}, {"X-Access-Token": "0" * 64}, {"X-Access-Token": ""}):
        for method, path in (
            ("POST", "/process.Process/Start"),
            ("POST", "/filesystem.Filesystem/ListDir"),
            ("GET", "/metrics"),
            ("GET", "/files?path=note"),
            ("POST", "/files?path=note"),
        ):
            refused = await envd.request(method, path, headers=headers)
            assert refused.status_code == 403, (method, path)
            assert "can't be resumed with the credentials" in refused.json()["message"]
    assert await _is_paused(paused)


async def test_auto_resume__preflight_does_not_resume(paused, envd):
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    answer = await envd.options("/process.Process/Start", headers=asked)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, "*")
    assert await _is_paused(paused)


@pytest.mark.parametrize("shared_address", [False, True])
async def test_auto_resume__valid_signed_url_resumes(paused, envd, engine, shared_address):
    await paused.files.write("signed", "content")
    good = paused.download_url("signed", use_signature_expiration=600)
    expired = paused.download_url("signed", use_signature_expiration=-1)
    await paused.pause()
    headers = {"Host": f"127.0.0.1:{engine.port}"} if shared_address else {}
    for url in (expired, good.replace("signature=v1_", "signature=v1_x")):
        refused = await envd.get(url, headers=headers)
        assert refused.status_code in (401, 403)
        assert await _is_paused(paused)
    assert (await envd.get(good, headers=headers)).content == b"content"
    assert not await _is_paused(paused)


async def test_auto_resume__disabled_auto_resume_keeps_it_paused(options, engine):
    created = await AsyncSandbox.create(lifecycle={"on_timeout": "pause"}, **options)
    async with created as sandbox:
        await sandbox.pause()
        with pytest.raises(SandboxNotRunningException):
            await sandbox.commands.run("true")
        async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
            host = {"Host": sandbox.get_host(8000)}
            asleep = await client.get("/", headers=host)
        assert asleep.status_code == 502
        assert asleep.json()["message"] == "The sandbox was not found"
        assert await _is_paused(sandbox)


async def test_auto_resume__filesystem_paused_sandbox_is_not_resumed(options):
    async with await AsyncSandbox.create(lifecycle=WAKEABLE, **options) as sandbox:
        await sandbox.pause(mode="filesystem")
        with pytest.raises(SandboxNotRunningException):
            await sandbox.commands.run("true")
        assert await _is_paused(sandbox)


async def test_auto_resume__private_sandbox_requires_the_traffic_token(options, engine):
    created = await AsyncSandbox.create(
        lifecycle=WAKEABLE, network={"allow_public_traffic": False}, **options
    )
    async with created as sandbox, httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        await sandbox.pause()
        headers = {"Host": sandbox.get_host(8000)}
        for token in ({}, {"e2b-traffic-access-token": "0" * 64}):
            assert (await client.get("/", headers=headers | token)).status_code == 403
            assert await _is_paused(sandbox)
        assert sandbox.traffic_access_token is not None
        friend = headers | {"e2b-traffic-access-token": sandbox.traffic_access_token}
        assert "port is not open" in (await client.get("/", headers=friend)).text
        assert not await _is_paused(sandbox)


async def test_auto_resume__killed_sandbox_is_not_resumed(options):
    sandbox = await AsyncSandbox.create(lifecycle=WAKEABLE, **options)
    await sandbox.pause()
    await sandbox.kill()
    with pytest.raises(SandboxNotRunningException):
        await sandbox.commands.run("true")


async def test_auto_resume__failed_resume_is_answered_as_not_found(options, engine):
    async with await AsyncSandbox.create(lifecycle=WAKEABLE, **options) as sandbox:
        directory = await _end_processes(engine, sandbox)
        (directory / "disk.img").write_bytes(b"no file system")
        with pytest.raises(SandboxNotRunningException):
            await sandbox.commands.run("true")
        assert await _is_paused(sandbox)


async def _is_paused(sandbox):
    return (await sandbox.get_info()).state is SandboxState.PAUSED


async def _end_processes(engine, sandbox):
    """End all of the sandbox's processes, which leaves its files; gives its directory."""
    directory = engine.state_dir / "sandboxes" / sandbox.sandbox_id
    os.kill(int((directory / "init.pid").read_text()), signal.SIGKILL)
    await until(lambda: _is_paused(sandbox))
    return directory


async def _log(engine, sandbox):
    told = await engine.ask(f"/v2/sandboxes/{sandbox.sandbox_id}/logs")
    return [entry["message"] for entry in told["logs"]]


@contextlib.contextmanager
def _stopped_keeper(engine):
    keeper = keeper_pid(_keeper_dir(engine))
    os.kill(keeper, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(keeper, signal.SIGCONT)


async def _first_to_wait(ask):
    """Ask again and again until an answer does not come at once; gives who waits for it."""
    async with asyncio.timeout(60):
        while True:
            asking = asyncio.create_task(ask())
            _, waiting = await asyncio.wait([asking], timeout=2)
            if waiting:
                return asking
            asking.result()


def _keeper_dir(engine):
    return Path("/run/sandbox-engine") / engine.instance / "keeper"


def _commands(engine):
    return (_keeper_dir(engine) / "commands").iterdir()


async def _has_commands(engine, *, more_than):
    return len(list(_commands(engine))) > more_than
