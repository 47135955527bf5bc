import asyncio

import pytest

from sandbox_client.errors import TerminalNotFound, Unauthenticated
from sandbox_client.events import (
    SandboxStateChanged,
    TerminalAttached,
    TerminalExit,
    TerminalResized,
)
from sandbox_client.models import CommandState, SandboxState
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

COUNT = "stty -echo; echo ready; while read n; do echo $n; done; exit 4"


async def shown_until(events, text):
    """Read on until this is shown; gives all that was shown."""
    shown = b""
    async with asyncio.timeout(20):
        async for event in events:
            if isinstance(event, bytes):
                shown += event
            if text in shown:
                return shown
    raise AssertionError(f"{text!r} was not shown, but {shown!r}")


async def test_terminal__streams_output_and_exit_code(sandbox):
    async with await sandbox.open_terminal(cmd="read x; stty size; echo =$x; exit 4") as terminal:
        events = aiter(terminal)
        assert isinstance(await anext(events), TerminalAttached)
        await terminal.resize(100, 30)
        async for event in events:
            if isinstance(event, TerminalResized):
                break
        await terminal.send("tëxt\r")
        assert "30 100\r\n=tëxt\r\n".encode() in await shown_until(events, b"=t\xc3\xabxt\r\n")
        *_, last = [event async for event in events]
    assert last == TerminalExit(state=CommandState.EXITED, exit_code=4)
    assert (await terminal.refresh()).exit_code == 4


async def test_terminal__reattach_continues_at_the_offset(sandbox):
    terminal = await sandbox.open_terminal(cmd=COUNT)
    first = aiter(terminal)
    shown = await shown_until(first, b"ready\r\n")
    await terminal.send("one\ntwo\n")
    shown += await shown_until(first, b"two\r\n")
    await terminal.close()
    again = await sandbox.attach_terminal(terminal.id, after=terminal.offset)
    await again.send("three\n")
    assert await shown_until(aiter(again), b"three\r\n") == b"three\r\n"
    await again.close()
    whole = await sandbox.attach_terminal(terminal.id)
    assert (await shown_until(aiter(whole), b"three\r\n")).endswith(shown + b"three\r\n")
    assert terminal.id in [one.id async for one in sandbox.list_terminals()]
    await whole.kill()
    *_, last = [event async for event in whole]
    assert last.state is CommandState.KILLED


async def test_terminal__output_of_an_ended_terminal_is_readable(sandbox):
    terminal = await sandbox.open_terminal(cmd="seq 20000; exit 3")
    *_, last = [event async for event in terminal]
    assert last == TerminalExit(state=CommandState.EXITED, exit_code=3)
    again = await sandbox.attach_terminal(terminal.id)
    shown, events = b"", aiter(again)
    async for event in events:
        await asyncio.sleep(0)
        if isinstance(event, bytes):
            shown += event
    assert shown == b"".join(b"%d\r\n" % number for number in range(1, 20001))


async def test_terminal__reconnect_neither_loses_nor_repeats_output(client_at, wire, sandbox):
    async with client_at(wire.url) as client:
        sandbox = await client.get_sandbox(sandbox.id)
        terminal = await sandbox.open_terminal(cmd=COUNT)
        events = aiter(terminal)
        shown = await shown_until(events, b"ready\r\n")
        for number in range(4):
            await terminal.send(f"number {number}\n")
            shown += await shown_until(events, f"number {number}\r\n".encode())
            await wire.cut()
            assert isinstance(await anext(events), TerminalAttached)
        await (await sandbox.attach_terminal(terminal.id)).send("beyond\n")
        shown += await shown_until(events, b"beyond\r\n")
        await terminal.kill()
    numbers = b"".join(b"number %d\r\n" % number for number in range(4))
    assert shown == b"ready\r\n" + numbers + b"beyond\r\n"


async def test_terminal__input_after_a_reconnect_repeats_no_output(client_at, wire, sandbox):
    async with client_at(wire.url) as client:
        terminal = await (await client.get_sandbox(sandbox.id)).open_terminal(cmd=COUNT)
        events = aiter(terminal)
        shown = await shown_until(events, b"ready\r\n")
        other = await sandbox.attach_terminal(terminal.id)
        await other.send("two\n")
        await shown_until(
            aiter(other), b"two\r\n"
        )  # the first viewer is shown it too, and does not look
        await wire.cut()

        async def is_broken():
            return not terminal._attachment.is_open

        await until(is_broken)
        await terminal.send("three\n")
        shown += await shown_until(events, b"three\r\n")
        assert shown == b"ready\r\ntwo\r\nthree\r\n"
        await terminal.kill()
        await terminal.close()
        await other.close()


async def test_auto_resume__typing_resumes_a_paused_sandbox(client):
    async with await client.create_sandbox(template="base") as sandbox:
        terminal = await sandbox.open_terminal(cmd=COUNT)
        events = aiter(terminal)
        await shown_until(events, b"ready")
        await terminal.send("before\n")
        await shown_until(events, b"before")
        await sandbox.pause()
        async for event in events:
            if isinstance(event, SandboxStateChanged) and event.state is SandboxState.PAUSED:
                break
        await terminal.send("after\n")
        await shown_until(events, b"after")
        await terminal.close()


@pytest.mark.parametrize("client_at", ["async"], indirect=True)
async def test_terminal__missing_permission_raises(client, client_at, sandbox):
    with pytest.raises(TerminalNotFound):
        await sandbox.attach_terminal("0" * 20)
    key = await client.create_key(scopes=["sandboxes"])
    async with client_at(api_key=key.secret) as other:
        terminal = await (await other.get_sandbox(sandbox.id)).open_terminal(cmd=COUNT)
        events = aiter(terminal)
        await anext(events)
        await client.revoke_key(key.id)
        with pytest.raises(Unauthenticated):
            await shown_until(events, b"never")
