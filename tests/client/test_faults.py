"""What goes wrong between client and server."""

import asyncio
import json
import time

import pytest

from sandbox_client.errors import (
    QueueFull,
    RateLimited,
    SandboxNotFound,
    UnexpectedAnswer,
    Unreachable,
)
from sandbox_client.events import CommandOutput, FileChange, WatchGap
from tests.server.support.fault_proxy import answer_with, cut, hold, lose_answer

pytestmark = pytest.mark.needs_engine

# What differs between the variants is tried with both.
BY_ASYNC_ALONE = pytest.mark.parametrize("client_at", ["async"], indirect=True)


def problem(code, status):
    return json.dumps(
        {
            "type": f"urn:sandbox-server:problem:{code}",
            "title": code,
            "status": status,
            "code": code,
            "detail": f"It is {code}.",
            "request_id": "r",
        }
    )


@pytest.fixture
async def behind(client_at, proxy):
    async with client_at(proxy.url, timeout=10, retry_for_s=10) as client:
        yield client


@pytest.fixture
async def distant(client_at, wire, sandbox_id):
    """Find the sandbox through a wire that can be cut."""
    async with client_at(wire.url) as client:
        yield await client.get_sandbox(sandbox_id)


async def test_stream_resume__output_is_complete_across_lost_connections(distant, wire):
    numbers, ids, breaks = "", [], {b"3\n": 0, b"7\n": 0}
    async with asyncio.timeout(30):
        async for event in distant.stream("for i in $(seq 10); do echo $i; sleep 0.1; done"):
            ids.append(event.id)
            if isinstance(event, CommandOutput):
                numbers += event.decoded
                if event.content in breaks:
                    await wire.cut()
    assert numbers == "".join(f"{number}\n" for number in range(1, 11))
    assert ids == sorted(set(ids))


@BY_ASYNC_ALONE
async def test_stream_resume__partial_event_is_requested_again(behind, proxy, sandbox_id):
    sandbox = await behind.get_sandbox(sandbox_id)
    proxy.on("GET /v1/sandboxes", cut)
    told: list[str] = []
    async with asyncio.timeout(30):
        done = await sandbox.run("seq 2000", on_stdout=told.append)
    assert "".join(told) == done.stdout == "".join(f"{number}\n" for number in range(1, 2001))


async def test_stream_resume__silent_stream_is_reconnected(client_at, wire, sandbox_id):
    async with client_at(wire.url, timeout=1) as client:
        sandbox = await client.get_sandbox(sandbox_id)
        command = await sandbox.start("for i in 1 2 3 4; do echo $i; sleep 0.2; done")
        said = ""
        async with asyncio.timeout(30):
            async for event in command.follow():
                if isinstance(event, CommandOutput):
                    said += event.decoded
                    if event.decoded.startswith("1"):
                        wire.silence()
    assert said == "1\n2\n3\n4\n"


async def test_idempotency__create_with_a_lost_response_makes_one_sandbox(behind, proxy):
    proxy.on("POST /v1/sandboxes", lose_answer, times=2)
    label = {"of": f"{time.monotonic_ns()}"}
    async with await behind.create_sandbox(template="base", metadata=label) as sandbox:
        made = [one.id async for one in behind.list_sandboxes(metadata=label)]
    assert made == [sandbox.id]
    assert await proxy.has_seen("POST /v1/sandboxes", times=3)


@BY_ASYNC_ALONE
async def test_idempotency__command_with_a_lost_response_runs_once(behind, proxy, sandbox_id):
    sandbox = await behind.get_sandbox(sandbox_id)
    proxy.on(f"POST /v1/sandboxes/{sandbox_id}/commands", lose_answer, times=3)
    assert (await sandbox.run("echo once >>/tmp/count; cat /tmp/count")).stdout == "once\n"
    await sandbox.files.delete("/tmp/count")


@BY_ASYNC_ALONE
async def test_retry__delete_with_a_lost_response_succeeds(behind, proxy, sandbox_id):
    sandbox = await behind.get_sandbox(sandbox_id)
    await sandbox.files.write("/tmp/gone", "")
    proxy.on("DELETE", lose_answer)
    await sandbox.files.delete("/tmp/gone")


@BY_ASYNC_ALONE
async def test_retry__stdin_is_never_sent_twice(behind, proxy, sandbox_id):
    sandbox = await behind.get_sandbox(sandbox_id)
    command = await sandbox.start("cat", stdin=True)
    proxy.on("POST", lose_answer)
    with pytest.raises(Unreachable, match="It is unknown whether the request was carried out"):
        await command.send("once")
    await command.send("", end=True)
    assert (await command.wait()).stdout == "once"


@BY_ASYNC_ALONE
@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "rate-limited"), (503, "database-unavailable")],
)
async def test_retry__retry_after_is_respected(behind, proxy, sandbox_id, status, code):
    proxy.on("GET", answer_with(status, problem(code, status), Retry_After="1"))
    begun = time.monotonic()
    assert (await behind.get_sandbox(sandbox_id)).id == sandbox_id
    assert time.monotonic() - begun >= 1


@BY_ASYNC_ALONE
async def test_retry__retry_after_beyond_the_deadline_raises_at_once(behind, proxy):
    proxy.on("GET", answer_with(429, problem("rate-limited", 429), Retry_After="60"))
    with pytest.raises(RateLimited) as refused:
        await behind.stats()
    assert refused.value.retry_after == 60
    assert len(proxy.seen) == 1


@BY_ASYNC_ALONE
@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(429, "queue-full", QueueFull), (404, "sandbox-not-found", SandboxNotFound)],
)
async def test_retry__permanent_errors_are_not_retried(behind, proxy, status, code, error):
    proxy.on("POST", answer_with(status, problem(code, status), Retry_After="1"))
    with pytest.raises(error):
        await behind.create_sandbox(template="base")
    assert len(proxy.seen) == 1


@BY_ASYNC_ALONE
async def test_retry__gateway_errors_are_retried(behind, proxy):
    proxy.on("GET", answer_with(502, "<h1>Bad Gateway</h1>"), times=2)
    await behind.stats()
    proxy.on("GET", answer_with(404, "<h1>Not here</h1>"))
    with pytest.raises(UnexpectedAnswer, match="Unexpected response") as found:
        await behind.stats()
    assert found.value.status == 404


async def test_retry__waits_for_a_server_that_is_down(client_at, proxy):
    await proxy.refuse()
    async with client_at(proxy.url, retry_for_s=0.5) as client:
        with pytest.raises(Unreachable, match="Check that it is running") as found:
            await client.stats()
        assert isinstance(found.value, ConnectionError)
    async with client_at(proxy.url) as client:

        async def ask():
            return await client.stats()

        asked = asyncio.create_task(ask())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.shield(asked)
        await proxy.listen()
        assert (await asked).backends


@BY_ASYNC_ALONE
async def test_timeout__limits_the_time_without_data(client_at, proxy, sandbox_id):
    async with client_at(proxy.url, timeout=1, retry_for_s=0.1) as client:
        sandbox = await client.get_sandbox(sandbox_id)
        assert (await sandbox.run("sleep 1.5; echo waited")).stdout == "waited\n"
        proxy.on("GET", hold)
        with pytest.raises(Unreachable):
            await client.stats()


async def test_stream_resume__download_continues_at_its_offset(behind, proxy, sandbox_id, tmp_path):
    files = (await behind.get_sandbox(sandbox_id)).files
    content = bytes(range(256)) * 30_000
    await files.write("/tmp/large", content)
    proxy.on("GET", cut, times=2)
    await files.download("/tmp/large", tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["large"]


@BY_ASYNC_ALONE
async def test_retry__repeatable_upload_is_sent_again(behind, proxy, sandbox_id, tmp_path):
    files = (await behind.get_sandbox(sandbox_id)).files
    (tmp_path / "source").write_text("from a file")
    for content in ("text", tmp_path / "source"):
        proxy.on("PUT", lose_answer)
        await files.write("/tmp/sent", content)
    assert await files.read_text("/tmp/sent") == "from a file"
    proxy.on("PUT", lose_answer)
    with pytest.raises(Unreachable):
        await files.write("/tmp/sent", iter([b"gone by"]))


@BY_ASYNC_ALONE
async def test_watch__reconnect_yields_a_gap(distant, wire):
    told = distant.files.watch("/tmp", recursive=True)
    first = asyncio.ensure_future(anext(told))
    async with asyncio.timeout(30):
        while not first.done():  # nobody says when the watch has begun
            await distant.run("touch /tmp/seen")
        await wire.cut()
        async for event in told:
            if isinstance(event, WatchGap):
                break
        await distant.run("touch /tmp/after")
        assert isinstance(await anext(told), FileChange)
        await wire.cut()
    await told.aclose()
