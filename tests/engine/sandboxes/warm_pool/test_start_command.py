import asyncio
import contextlib
import json
import secrets

import httpx
import pytest
from e2b import AsyncSandbox, AsyncTemplate, AsyncVolume, CommandExitException, SandboxException

from tests.engine.polling import until
from tests.engine.sandboxes.warm_pool.conftest import PORT, SERVER

pytestmark = pytest.mark.needs_engine


@pytest.fixture
async def volume(options, engine, monkeypatch):
    """Create a volume, whose place in a sandbox a start command finds there."""
    monkeypatch.setenv("E2B_VOLUME_API_URL", engine.url)
    volume = await AsyncVolume.create(f"v-{secrets.token_hex(6)}", **options)
    yield volume
    await AsyncVolume.destroy(volume.volume_id, **options)


@pytest.fixture
async def server(options, name, build_server):
    """Create a sandbox whose template has a start command."""
    await build_server(name, options)
    sandbox = await AsyncSandbox.create(name, envs={"NAME": "you"}, timeout=300, **options)
    yield sandbox
    with contextlib.suppress(SandboxException):
        await sandbox.kill()


async def listening(sandbox):
    told = f"localhost:{PORT}/told-{sandbox.sandbox_id}"
    page = await sandbox.commands.run(f"curl --silent --show-error --fail {told}")
    return page.stdout.splitlines()


async def test_start_command__is_ready_when_create_returns(server):
    assert await listening(server) == ["hello "]


async def test_start_command__sees_only_the_template_variables(server):
    """It may have been started before anybody asked for the sandbox, as with E2B."""
    (command,) = await server.commands.list()
    seen = (await server.commands.run(f"tr '\\0' '\\n' < /proc/{command.pid}/environ")).stdout
    assert {"GREETING=hello", f"E2B_SANDBOX_ID={server.sandbox_id}"} <= set(seen.splitlines())
    assert "NAME=you" not in seen.splitlines()
    assert (await server.commands.run("echo $NAME")).stdout == "you\n"


async def test_start_command__is_an_ordinary_command(server):
    (command,) = await server.commands.list()
    assert (command.cmd, command.args) == ("/bin/bash", ["-l", "-c", SERVER])
    connected = await server.commands.connect(command.pid)
    assert await server.commands.kill(command.pid)
    with pytest.raises(CommandExitException):
        await connected.wait()


async def test_start_command__log_omits_ready_commands(server, engine):
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        answer = await client.get(
            f"/v2/sandboxes/{server.sandbox_id}/logs", headers={"X-API-Key": engine.api_key}
        )
    told = [one["fields"] for one in answer.json()["logs"] if one["message"] == "command started"]
    assert [SERVER in one["command"] for one in told] == [True]


async def test_start_command__ready_command_may_leave_processes(options, name):
    template = AsyncTemplate().from_base_image().set_ready_cmd("sleep 1000 & test -e /etc")
    await AsyncTemplate.build(template, name, **options)
    async with await AsyncSandbox.create(name, timeout=120, **options) as sandbox:
        assert (await sandbox.commands.run("pgrep -c sleep")).stdout == "1\n"


async def test_start_command__thawed_sandbox_continues_it(server):
    await server.pause()
    await server.connect(timeout=120)
    assert await listening(server) == ["hello "]


async def test_start_command__sandbox_resumed_from_files_restarts_it(server):
    await server.pause(mode="filesystem")
    await server.connect(timeout=120)
    assert await listening(server) == ["hello "] * 2


async def test_start_command__unready_sandbox_can_be_killed(engine, options, name):
    template = AsyncTemplate().from_base_image().set_ready_cmd("test ! -e ~/hindrance")
    await AsyncTemplate.build(template, name, **options)
    sandbox = await AsyncSandbox.create(name, timeout=300, **options)
    await sandbox.files.write("hindrance", "")
    await sandbox.pause(mode="filesystem")
    connecting = asyncio.create_task(sandbox.connect(timeout=300))

    async def is_coming_up():
        record = engine.state_dir / "sandboxes" / sandbox.sandbox_id / "record.json"
        return json.loads(record.read_text())["link"] is not None

    await until(is_coming_up, timeout=60)
    assert await sandbox.kill()
    with pytest.raises(SandboxException, match="killed by request"):
        await connecting
    assert not await sandbox.is_running()


async def test_start_command__failure_fails_the_create_with_the_reason(options, name, volume):
    start = 'test ! -e /wrong || { echo "cannot find it"; echo "at all" >&2; exit 3; }; sleep 1000'
    template = AsyncTemplate().from_base_image().set_start_cmd(start, "test ! -e /wrong")
    await AsyncTemplate.build(template, name, **options)
    with pytest.raises(SandboxException) as caught:
        await AsyncSandbox.create(
            name,
            volume_mounts={"/wrong": volume},
            metadata={"name": name},
            timeout=120,
            **options,
        )
    assert "start command ended with exit status 3: cannot find it\nat all" in str(caught.value)
    assert [one async for one in _all(options) if one.metadata == {"name": name}] == []


async def test_start_command__ready_command_alone_is_awaited(options, name):
    count = "tries=tries-$E2B_SANDBOX_ID; echo x >> $tries; test $(wc -l < $tries) -ge 3"
    template = AsyncTemplate().from_base_image().set_ready_cmd(count)
    await AsyncTemplate.build(template, name, **options)
    async with await AsyncSandbox.create(name, timeout=120, **options) as sandbox:
        assert await sandbox.files.read(f"tries-{sandbox.sandbox_id}") == "x\n" * 3


async def _all(options):
    pages = AsyncSandbox.list(**options)
    while pages.has_next:
        for one in await pages.next_items():
            yield one
