import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)

from tests.engine.marked_sandboxes import list_marked, new_mark
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

UNKNOWN = "i0000000000000000000"


async def test_sandbox__created_sandbox_runs_commands_and_keeps_its_options(options):
    async with await AsyncSandbox.create(
        timeout=60, metadata={"purpose": "test"}, envs={"GREETING": "hello"}, **options
    ) as sandbox:
        said = await sandbox.commands.run("echo $GREETING from $(id -un) in $PWD")
        info = await sandbox.get_info()
    assert said.stdout == "hello from user in /home/user\n"
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.template_id == info.name == "base"
    assert info.metadata == {"purpose": "test"}
    assert info.state is SandboxState.RUNNING
    assert timedelta(seconds=59) < info.end_at - info.started_at <= timedelta(seconds=61)
    assert (info.cpu_count, info.memory_mb) == (2, 1024)
    assert info.lifecycle == {"on_timeout": "kill", "auto_resume": False}


def test_sandbox__sync_sdk_works_too(options):
    with Sandbox.create(timeout=60, **options) as sandbox:
        assert sandbox.commands.run("echo hi").stdout == "hi\n"
        assert sandbox.is_running()
        sandbox.files.write("note", "text")
        assert sandbox.files.read("note") == "text"
    assert not sandbox.is_running()


async def test_sandbox__killed_sandbox_is_gone_for_all_calls(options):
    sandbox = await AsyncSandbox.create(**options)
    assert await sandbox.kill()
    assert not await sandbox.kill()
    assert not await sandbox.is_running()
    with pytest.raises(SandboxNotFoundException):
        await sandbox.get_info()
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect(sandbox.sandbox_id, **options)
    with pytest.raises(SandboxNotRunningException):
        await sandbox.commands.run("true")
    with pytest.raises(SandboxNotRunningException):
        await sandbox.files.read("note")


async def test_sandbox__unknown_sandboxes_are_not_found(options):
    assert not await AsyncSandbox.kill(UNKNOWN, **options)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect(UNKNOWN, **options)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.get_info(UNKNOWN, **options)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.set_timeout(UNKNOWN, 60, **options)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.pause(UNKNOWN, **options)


async def test_sandbox__unknown_template_is_named(options):
    with pytest.raises(SandboxException, match="template 'no-such-template' not found") as caught:
        await AsyncSandbox.create("no-such-template", **options)
    assert caught.value.status_code == 404


@pytest.mark.parametrize("key", ["e2b_" + "0" * 40, "", "nonsense"])
async def test_sandbox__wrong_api_key_is_rejected(engine, key):
    with pytest.raises((AuthenticationException, SandboxException)):
        await AsyncSandbox.create(api_key=key or " ", api_url=engine.url, validate_api_key=False)
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        refused = await client.post("/sandboxes", headers={"X-API-Key": key}, json={})
        keyless = await client.get("/v2/sandboxes")
    assert refused.status_code == keyless.status_code == 401
    assert refused.json()["code"] == 401


@pytest.mark.parametrize("timeout", [0, -1, 25 * 3600, 10**12])
async def test_sandbox__absurd_timeout_is_rejected(options, timeout):
    mark = new_mark()
    with pytest.raises(SandboxException, match="Timeout"):
        await AsyncSandbox.create(timeout=timeout, metadata=mark, **options)
    assert await list_marked(mark, options) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"templateID": 7}',
        b'{"templateID": "base", "timeout": "soon"}',
        b'{"templateID": "base", "metadata": {"a": 1}}',
        b'{"templateID": "base", "envVars": {"a=b": "c"}}',
        b'{"templateID": "base", "envVars": {"a": "nul\\u0000"}}',
        b'{"templateID": "base", "autoPauseMemory": false}',
    ],
)
async def test_sandbox__malformed_request_has_the_e2b_error_format(engine, body):
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        answer = await client.post(
            "/v2/sandboxes", content=body, headers={"X-API-Key": engine.api_key}
        )
    assert answer.status_code == 400
    assert answer.json()["code"] == 400
    assert answer.json()["message"]


async def test_sandbox__unsupported_features_are_reported(options, engine):
    with pytest.raises(SandboxException, match="not implemented by this engine") as caught:
        await AsyncSandbox.create(network={"https_ports": [443]}, **options)
    assert caught.value.status_code == 501
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        answer = await client.post("/templates", headers={"X-API-Key": engine.api_key})
    assert answer.status_code == 501


async def test_sandbox__mcp_sandbox_fails_as_the_sdk_expects(options):
    with pytest.raises(SandboxException, match="template 'mcp-gateway' not found"):
        await AsyncSandbox.create(mcp={"duckduckgo": {}}, **options)
    mark = new_mark()
    with pytest.raises(SandboxException, match="Failed to start MCP gateway"):
        await AsyncSandbox.create("base", mcp={"duckduckgo": {}}, metadata=mark, **options)
    assert await list_marked(mark, options) == []


async def test_sandbox__idempotency_key_creates_one_sandbox(options):
    key = f"once-{datetime.now(UTC).timestamp():.0f}"
    created = await asyncio.gather(
        *(AsyncSandbox.create(idempotency_key=key, timeout=60, **options) for _ in range(5))
    )
    assert len({sandbox.sandbox_id for sandbox in created}) == 1
    with pytest.raises(SandboxException, match="different request"):
        await AsyncSandbox.create(idempotency_key=key, timeout=61, **options)
    await created[0].kill()


async def test_sandbox__connect_extends_but_never_shortens_the_deadline(sandbox, options):
    before = (await sandbox.get_info()).end_at
    await AsyncSandbox.connect(sandbox.sandbox_id, timeout=10, **options)
    assert (await sandbox.get_info()).end_at == before
    again = await AsyncSandbox.connect(sandbox.sandbox_id, timeout=600, **options)
    assert (await again.get_info()).end_at > before + timedelta(seconds=400)
    assert (await again.commands.run("echo still here")).stdout == "still here\n"


async def test_sandbox__set_timeout_moves_the_deadline(sandbox):
    await sandbox.set_timeout(600)
    far = (await sandbox.get_info()).end_at
    await sandbox.set_timeout(30)
    near = (await sandbox.get_info()).end_at
    assert far - near > timedelta(seconds=500)


async def test_sandbox__refreshes_extend_and_never_shorten(sandbox, engine):
    before = (await sandbox.get_info()).end_at
    async with httpx.AsyncClient(
        base_url=engine.url, headers={"X-API-Key": engine.api_key}, timeout=60
    ) as client:
        path = f"/sandboxes/{sandbox.sandbox_id}/refreshes"
        assert (await client.post(path, json={"duration": 20})).status_code == 204
        assert (await sandbox.get_info()).end_at == before
        assert (await client.post(path, json={"duration": 3000})).status_code == 204
    assert (await sandbox.get_info()).end_at > before


async def test_sandbox__is_killed_at_its_deadline(options):
    sandbox = await AsyncSandbox.create(timeout=1, **options)

    async def is_gone():
        return not await sandbox.is_running()

    await until(is_gone)
    with pytest.raises(SandboxNotFoundException):
        await sandbox.get_info()


async def test_sandbox__is_paused_at_its_deadline_if_configured(options):
    sandbox = await AsyncSandbox.create(timeout=1, lifecycle={"on_timeout": "pause"}, **options)
    try:

        async def is_paused():
            return (await sandbox.get_info()).state is SandboxState.PAUSED

        await until(is_paused)
        await sandbox.connect(timeout=60)
        assert (await sandbox.commands.run("echo awake")).stdout == "awake\n"
    finally:
        await sandbox.kill()


async def test_sandbox__pause_keeps_memory_and_processes(sandbox):
    counting = "i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.02; done"
    command = await sandbox.commands.run(counting, background=True, timeout=0)
    await until(lambda: sandbox.files.exists("count"))
    assert await sandbox.pause()
    assert not await sandbox.pause()
    assert (await sandbox.get_info()).state is SandboxState.PAUSED
    assert not await sandbox.is_running()
    with pytest.raises(SandboxNotRunningException):
        await sandbox.commands.run("true")

    await sandbox.connect(timeout=60)
    before = int(await sandbox.files.read("count"))

    async def has_gone_on():
        return int(await sandbox.files.read("count") or 0) > before

    await until(has_gone_on)
    assert command.pid in [one.pid for one in await sandbox.commands.list()]


async def test_sandbox__concurrent_connects_resume_once(sandbox, options):
    await sandbox.pause()
    connected = await asyncio.gather(
        *(AsyncSandbox.connect(sandbox.sandbox_id, timeout=60, **options) for _ in range(10))
    )
    outputs = await asyncio.gather(*(one.commands.run("echo on") for one in connected))
    assert {output.stdout for output in outputs} == {"on\n"}


async def test_sandbox__pause_during_command_starts_does_not_hang(sandbox):
    over = asyncio.Event()
    done = asyncio.Semaphore(0)

    async def run_commands():
        while not over.is_set():
            try:
                assert (await sandbox.commands.run("echo $((6 * 7))", timeout=10)).stdout == "42\n"
                done.release()
            except TimeoutException:  # paused: asked at the wrong moment
                pass
            except (
                ConnectError
            ) as error:  # a pause closes connections, this one before it was heard
                if error.code is not Code.UNAVAILABLE:
                    raise

    running = [asyncio.create_task(run_commands()) for _ in range(4)]
    for _ in range(15):
        await sandbox.pause()
        await sandbox.connect(timeout=60)
        async with asyncio.timeout(15):
            for _ in range(6):
                await done.acquire()
    over.set()
    await asyncio.gather(*running)


async def test_sandbox__a_paused_sandbox_can_be_killed(options):
    sandbox = await AsyncSandbox.create(timeout=60, **options)
    await sandbox.pause()
    assert await sandbox.kill()
    with pytest.raises(NotFoundException):
        await sandbox.get_info()


async def test_sandbox__list_filters_and_pages(options):
    mark = f"list-{datetime.now(UTC).timestamp():.0f}"
    created = [
        await AsyncSandbox.create(timeout=60, metadata={"mark": mark, "n": str(n)}, **options)
        for n in range(3)
    ]
    try:
        await created[1].pause()
        ours = SandboxQuery(metadata={"mark": mark})
        pages = AsyncSandbox.list(query=ours, limit=2, **options)
        listed = []
        while pages.has_next:
            page = await pages.next_items()
            assert len(page) <= 2
            listed += page
        assert [one.sandbox_id for one in listed] == [one.sandbox_id for one in reversed(created)]
        paused = SandboxQuery(metadata={"mark": mark}, state=[SandboxState.PAUSED])
        found = await AsyncSandbox.list(query=paused, **options).next_items()
        assert [one.sandbox_id for one in found] == [created[1].sandbox_id]
        odd = SandboxQuery(metadata={"mark": mark, "n": "no such & value=x"})
        assert await AsyncSandbox.list(query=odd, **options).next_items() == []
    finally:
        await asyncio.gather(*(one.kill() for one in created))


async def test_sandbox__invalid_page_token_or_filter_is_an_error(engine):
    async with httpx.AsyncClient(
        base_url=engine.url, headers={"X-API-Key": engine.api_key}, timeout=60
    ) as client:
        for query in ("nextToken=nonsense", "limit=0", "limit=101", "state=dead", "metadata=a"):
            answer = await client.get(f"/v2/sandboxes?{query}")
            assert answer.status_code == 400, query


async def test_sandbox__metrics_show_usage_and_limits(sandbox):
    await sandbox.commands.run("head -c 30M /dev/urandom > /dev/shm/x && cp /dev/shm/x kept")
    metrics = (await sandbox.get_metrics())[-1]
    assert metrics.cpu_count == 2
    assert metrics.mem_total == 1024 << 20
    assert 30 << 20 < metrics.mem_used + metrics.mem_cache < metrics.mem_total
    assert 8 << 30 < metrics.disk_total < 11 << 30
    assert 30 << 20 <= metrics.disk_used < 1 << 30


async def test_sandbox__host_names_are_below_the_engine_domain(sandbox, engine):
    assert sandbox.get_host(3000) == f"3000-{sandbox.sandbox_id}.localhost:{engine.port}"


async def test_sandbox__health_needs_no_key(engine):
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}


async def test_sandbox__invalid_arguments_raise_sdk_errors(sandbox):
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        await sandbox.commands.run("true", cwd="/no/such/directory")
    with pytest.raises(AuthenticationException, match="invalid username"):
        await sandbox.commands.run("true", user="nobody-we-know")
