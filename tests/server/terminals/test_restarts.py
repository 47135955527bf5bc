"""Terminals across stops and crashes of servers, and viewers that do not read."""

import asyncio

import pytest

from tests.engine.polling import until
from tests.server.support.metrics_reader import samples_in
from tests.server.terminals.terminal_viewers import viewing

pytestmark = [pytest.mark.needs_engine, pytest.mark.slow]

COUNT = r"i=0; while read line; do i=$((i + 1)); echo [$i:$line]; done"


async def resumed(viewer, caller, path):
    """Return the number of bytes shown, as the viewer knows it."""
    read = (await caller.get(path)).json()
    assert read["state"] == "running"
    assert viewer.offset <= read["size"]
    return f"{path}?after={viewer.offset}"


async def test_server_stop__viewers_are_notified_and_continue_at_another_server(
    server_pair, caller, other_caller, new_terminal
):
    made = await new_terminal(cmd=COUNT)
    async with viewing(caller, made["path"]) as viewer:
        await viewer.type(b"one\r")
        await viewer.until_shown(b"[1:one]\r\n")
        stopping = asyncio.create_task(asyncio.to_thread(server_pair.first.stop))
        code, _ = await viewer.until_closed()
        assert code in {1001, 1012}
        path = await resumed(viewer, other_caller, made["path"])
        async with viewing(other_caller, path) as again:
            await again.type(b"two\r")
            assert b"[1:one]" not in await again.until_shown(b"[2:two]\r\n")
    await stopping
    server_pair.first.start()


async def test_server_crash__another_server_continues_the_terminal_and_reports_a_gap(
    server_pair, caller, other_caller, new_terminal
):
    made = await new_terminal(cmd=COUNT)
    async with viewing(caller, made["path"]) as viewer:
        await viewer.type(b"one\r")
        await viewer.until_shown(b"[1:one]\r\n")
        await viewer.say("resize", cols=100, rows=30)
        await viewer.until_told("resized")
        await asyncio.to_thread(server_pair.first.kill)
        assert await viewer.until_closed() is None
    path = await resumed(viewer, other_caller, made["path"])
    async with viewing(other_caller, path) as again:
        assert (await again.until_told("gap"))["size"] is None
        await again.type(b"two\r")
        await again.until_shown(b"[2:two]\r\n")
        server_pair.first.start()
        async with viewing(caller, made["path"]) as late:
            await late.until_shown(b"[1:one]\r\n")
            await late.until_told("gap")
            await late.until_shown(b"[2:two]\r\n")
            assert late.offset == again.offset


async def test_terminal__a_viewer_that_does_not_read_is_disconnected_and_others_continue(
    caller, other_caller, new_terminal
):
    async def followers():
        return samples_in((await caller.get("/metrics")).text)["followers",]

    async def are_none_left():
        return await followers() == 0

    made = await new_terminal(cmd="while head -c 300000 /dev/zero; do sleep 0.02; done")
    async with (
        viewing(caller, made["path"], max_queue=1) as stalled,
        viewing(other_caller, made["path"]) as viewer,
    ):
        await stalled.until_told("attached")
        reading = asyncio.create_task(viewer.drain())
        await until(are_none_left, timeout=60)
        assert not reading.done()
        await caller.delete(made["path"])
        assert await reading == (1000, "The terminal has ended.")
