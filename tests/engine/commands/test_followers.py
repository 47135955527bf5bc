import asyncio

import pytest

from sandbox_engine.commands import (
    CommandNotFound,
)
from sandbox_engine.commands.spool import Output, Stream
from tests.engine.bare_container import (
    bash,
    eventually,
    follow_to_end,
    read_until,
)
from tests.engine.commands.command_observers import (
    FINE,
)

pytestmark = pytest.mark.needs_engine


async def test_command__late_follower_gets_output_from_then_on(table):
    command = await table.start(bash("echo first; read; echo second", stdin=True))
    first = command.follow()
    await read_until(first, b"first\n")
    second = command.follow()
    await command.write(b"\n", terminal=False)
    assert (await follow_to_end(second))[0] == [Output(Stream.STDOUT, b"second\n")]
    assert (await follow_to_end(first))[0] == [Output(Stream.STDOUT, b"second\n")]


async def test_command__stalled_follower_delays_neither_command_nor_followers(container, table):
    command = await table.start(bash("read; head -c 50000000 /dev/zero; echo end", stdin=True))
    stalled, quick = command.follow(), command.follow()
    await command.write(b"\n", terminal=False)
    async with asyncio.timeout(20):
        outputs, ended = await follow_to_end(quick)
    assert (sum(len(output.data) for output in outputs), ended) == (50_000_004, FINE)
    assert [path.name for path in container.spool_dir.iterdir()] == ["journal"]
    outputs, ended = await follow_to_end(stalled)
    assert (sum(len(output.data) for output in outputs), ended) == (50_000_004, FINE)


async def test_command__followers_are_optional(table):
    command = await table.start(bash("head -c 50000000 /dev/zero"))
    command.follow().close()
    await eventually(lambda: command.ended is not None)
    assert (await follow_to_end(command.follow())) == ([], FINE)


async def test_command__ended_command_can_be_recalled_but_not_used(table):
    command = await table.start(bash("echo unheard", tag="job"))
    assert table.by_tag("job") is table.by_pid(command.pid) is command
    await follow_to_end(command.follow())
    assert table.list() == []
    assert table.recall_by_pid(command.pid) is table.recall_by_tag("job") is command
    assert await follow_to_end(command.follow()) == ([], FINE)
    with pytest.raises(CommandNotFound, match=f"process with pid {command.pid} not found"):
        table.by_pid(command.pid)
    with pytest.raises(CommandNotFound, match="process with tag job not found"):
        table.by_tag("job")


async def test_command__cancelled_start_leaves_a_command_that_can_be_found(table):
    starting = asyncio.create_task(table.start(bash("echo out; sleep 60", tag="orphan")))
    await asyncio.sleep(0)
    starting.cancel()
    await eventually(lambda: len(table.list()) == 1)
    follower = table.by_tag("orphan").follow()
    assert await read_until(follower, b"out\n") == b"out\n"
