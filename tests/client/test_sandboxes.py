import asyncio

import pytest

from sandbox_client.errors import (
    InvalidTransition,
    SandboxNotFound,
    TemplateNotFound,
    Unauthenticated,
    WaitTimeout,
)
from sandbox_client.models import SandboxState, SnapshotState

pytestmark = pytest.mark.needs_engine


async def test_sandbox__context_manager_deletes_it(client):
    async with await client.create_sandbox(template="base", metadata={"task": "demo"}) as sandbox:
        assert sandbox.record.state is SandboxState.RUNNING
        assert sandbox.record.metadata == {"task": "demo"}
        listed = [one.id async for one in client.list_sandboxes(metadata={"task": "demo"})]
        assert sandbox.id in listed
    assert (await sandbox.refresh()).state in {SandboxState.STOPPING, SandboxState.STOPPED}


async def test_sandbox__failing_block_deletes_it_and_raises_the_error(client):
    with pytest.raises(ZeroDivisionError):
        async with await client.create_sandbox(template="base") as sandbox:
            _ = 1 / 0
    assert (await sandbox.refresh()).state in {SandboxState.STOPPING, SandboxState.STOPPED}


async def test_sandbox__existing_sandbox_outlives_the_block(client, sandbox_id):
    async with await client.get_sandbox(sandbox_id) as sandbox:
        pass
    assert (await sandbox.refresh()).state is SandboxState.RUNNING


async def test_session_sandbox__is_found_again_and_resumed(client):
    first = await client.session_sandbox("a session? of ours", template="base")
    assert (await first.pause()).state is SandboxState.PAUSED
    async with await client.session_sandbox("a session? of ours", template="base") as again:
        assert again.id == first.id
        assert again.record.state is SandboxState.RUNNING
    await again.delete()


async def test_sandbox__lifecycle_methods(client):
    async with await client.create_sandbox(template="base", idle_timeout_s=600) as sandbox:
        assert (await sandbox.pause()).state is SandboxState.PAUSED
        assert (await sandbox.resume()).state is SandboxState.RUNNING
        assert (await sandbox.keepalive(600)).awake_until is not None
        changed = await sandbox.update(idle_timeout_s=None, metadata={"a": "b"})
        assert (changed.idle_timeout_s, changed.metadata) == (None, {"a": "b"})
        assert sandbox.record == changed
        await sandbox.files.write("mark", "of the original")
        async with await sandbox.fork(metadata={"is": "copy"}) as copy:
            assert await copy.files.read_text("mark") == "of the original"
        snapshot = await sandbox.snapshot("kept")
        assert snapshot.state is SnapshotState.READY
        assert [one.id async for one in sandbox.list_snapshots()] == [snapshot.id]
        assert (await client.get_snapshot(snapshot.id)).name == "kept"
        await client.delete_snapshot(snapshot.id)
        assert [one.type for one in await sandbox.timeline()][:2] == [
            "sandbox.starting",
            "sandbox.running",
        ]
        assert isinstance(await sandbox.metrics(), list)
    with pytest.raises(InvalidTransition):
        await sandbox.resume()


async def test_create_sandbox__queued_reports_progress(narrow):
    first = await narrow.create_sandbox(template="base")
    told = []
    is_queued = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_progress(record):
        told.append(record)
        loop.call_soon_threadsafe(is_queued.set)

    async def wait():
        return await narrow.create_sandbox(template="base", on_progress=on_progress)

    waiting = asyncio.create_task(wait())
    async with asyncio.timeout(20):
        await is_queued.wait()
        assert not waiting.done()
        assert told[0].state is SandboxState.QUEUED
        assert told[0].queue.position == 1
        await first.delete()
        second = await waiting
    assert second.record.state is SandboxState.RUNNING
    await second.delete()


async def test_create_sandbox__timeout_deletes_the_sandbox(narrow):
    async with await narrow.create_sandbox(template="base") as first:
        with pytest.raises(WaitTimeout) as over:
            await narrow.create_sandbox(template="base", wait_s=0.3)
        assert over.value.sandbox is not None
        assert over.value.sandbox.state is SandboxState.QUEUED
        assert "position 1 in the queue" in str(over.value)
        assert isinstance(over.value, TimeoutError)
        assert [one.id async for one in narrow.list_sandboxes()] == [first.id]
        at_once = await narrow.create_sandbox(template="base", wait_s=0)
        assert at_once.record.state is SandboxState.QUEUED
        await at_once.delete()


@pytest.mark.parametrize("client_at", ["async"], indirect=True)
async def test_create_sandbox__cancellation_deletes_the_sandbox(narrow):
    async with await narrow.create_sandbox(template="base") as first:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await narrow.create_sandbox(template="base")
        assert [one.id async for one in narrow.list_sandboxes()] == [first.id]


async def test_errors__server_errors_raise_their_own_exception(client, client_at):
    with pytest.raises(SandboxNotFound) as refused:
        await client.get_sandbox("0" * 20)
    error = refused.value
    assert (error.code, error.status, error.title) == (
        "sandbox-not-found",
        404,
        "Sandbox not found",
    )
    assert error.request_id
    assert error.remediation
    assert error.remediation in str(error)
    with pytest.raises(TemplateNotFound, match="nowhere"):
        await client.create_sandbox(template="nowhere")
    with pytest.raises(TemplateNotFound):
        await client.get_template("nowhere")
    async with client_at(api_key="sbx_wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.stats()
