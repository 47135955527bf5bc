import asyncio

import pytest

from sandbox_client.models import EventRead, LogEvent, LogRecord

pytestmark = pytest.mark.needs_engine


async def all_of(told):
    return [one async for one in told]


@pytest.mark.parametrize("client_at", ["async"], indirect=True)
async def test_events__stream_ends_with_the_sandbox(client):
    async with await client.create_sandbox(template="base") as sandbox:
        await sandbox.run("echo out; echo err >&2")
        listed = await all_of(sandbox.events(follow=False))
    async with asyncio.timeout(20):
        told, chosen, last = await asyncio.gather(
            all_of(sandbox.events()),
            all_of(sandbox.events(types=["sandbox.running"])),
            all_of(sandbox.events(tail=1)),
        )
        rest, none = await asyncio.gather(
            all_of(sandbox.events(after=told[1].seq)), all_of(sandbox.events(after=told[-1].seq))
        )
    assert [event.type for event in told] == [
        f"sandbox.{state}" for state in ("starting", "running", "stopping", "stopped")
    ]
    assert listed == told[:2]
    assert (chosen, last, rest, none) == (told[1:2], told[-1:], told[2:], [])


async def test_logs__events_and_output_in_one_order(client):
    async with await client.create_sandbox(template="base") as sandbox:
        await sandbox.run("echo out; echo err >&2")
    async with asyncio.timeout(20):
        told, same = await asyncio.gather(all_of(sandbox.logs()), all_of(client.logs([sandbox.id])))
    assert same == told
    assert await all_of(sandbox.logs(follow=False)) == told
    assert isinstance(told[0], LogEvent)
    written = [item for item in told if isinstance(item, LogRecord) and item.text]
    assert sorted((item.type, item.text) for item in written) == [
        ("stderr", "err\n"),
        ("stdout", "out\n"),
    ]
    chosen = await all_of(sandbox.logs(sources=["command"], follow=False))
    assert all(item.source == "command" for item in chosen)


async def test_events__stream_of_all_sandboxes_follows_new_events(client):
    told = client.events(tail=0, types=["sandbox.running"])
    first = asyncio.ensure_future(anext(told))
    async with asyncio.timeout(20):
        while not first.done():  # nobody says when following has begun
            async with await client.create_sandbox(template="base") as sandbox:
                pass
    event = await first
    assert isinstance(event, EventRead)
    assert event.type == "sandbox.running"
    assert sandbox.id
