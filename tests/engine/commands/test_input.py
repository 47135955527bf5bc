import asyncio
import hashlib
import os
import signal
import time

import pytest

from sandbox_engine.commands import (
    InputRefused,
    TerminalSize,
)
from sandbox_engine.commands.spool import Output, Stream
from tests.engine.bare_container import (
    bash,
    follow_to_end,
    read_until,
    run,
)
from tests.engine.commands.command_observers import (
    FINE,
    MIB,
)

pytestmark = pytest.mark.needs_engine


async def test_command__input_reaches_the_command_and_ends(table):
    command = await table.start(bash("cat; echo end", stdin=True))
    follower = command.follow()
    await command.write(b"hello\n", terminal=False)
    await read_until(follower, b"hello\n")
    command.close_stdin()
    command.close_stdin()
    outputs, _ = await follow_to_end(follower)
    assert outputs[-1].data == b"end\n"
    with pytest.raises(InputRefused, match="not enabled or closed"):
        await command.write(b"more", terminal=False)


async def test_command__large_input_waits_for_the_reader(table):
    command = await table.start(bash("sleep 0.2; md5sum", stdin=True))
    follower = command.follow()
    half = os.urandom(4 * MIB)
    await asyncio.gather(*(command.write(half, terminal=False) for _ in range(2)))
    command.close_stdin()
    outputs, _ = await follow_to_end(follower)
    expected = hashlib.md5(half * 2).hexdigest()
    assert outputs[0].data.startswith(expected.encode())


async def test_command__waiting_writer_gets_an_error_when_the_command_ends(table):
    command = await table.start(bash("sleep 60", stdin=True))
    writing = asyncio.create_task(command.write(b"x" * 3 * MIB, terminal=False))
    await asyncio.sleep(0)
    command.signal(signal.SIGKILL)
    async with asyncio.timeout(5):
        with pytest.raises(BrokenPipeError):
            await writing


async def test_command__input_is_rejected_without_stdin(table):
    command = await table.start(bash("sleep 60"))
    with pytest.raises(InputRefused, match="not enabled"):
        await command.write(b"x", terminal=False)
    with pytest.raises(InputRefused, match="tty not assigned"):
        await command.write(b"x", terminal=True)
    with pytest.raises(InputRefused, match="tty not assigned"):
        command.resize(TerminalSize(1, 1))
    command.close_stdin()


async def test_command__terminal_size_is_set_at_start_and_changed_later(table):
    script = "trap 'stty size' WINCH; stty size; tty; while :; do sleep 0.05; done"
    command = await table.start(bash(script, terminal=TerminalSize(33, 101)))
    follower = command.follow()
    assert b"33 101\r\n" in await read_until(follower, b"/dev/pts/0\r\n")
    command.resize(TerminalSize(44, 55))
    await read_until(follower, b"44 55\r\n")


async def test_command__terminal_accepts_input_and_control_characters(table):
    command = await table.start(bash("cat; echo over", terminal=TerminalSize(24, 80)))
    follower = command.follow()
    await command.write(b"line\n", terminal=True)
    await read_until(follower, b"line\r\nline\r\n")
    await command.write(b"\x04", terminal=True)
    outputs, ended = await follow_to_end(follower)
    assert outputs[-1] == Output(Stream.PTY, b"over\r\n")
    assert ended == FINE
    with pytest.raises(InputRefused):
        await command.write(b"x", terminal=False)


async def test_command__last_terminal_output_is_not_lost(table):
    for _ in range(20):
        request = bash("seq 2000; echo last", terminal=TerminalSize(24, 80))
        output, _ = await run(table, request)
        assert output.endswith(b"2000\r\nlast\r\n")


async def test_command__terminal_ends_with_its_process_despite_open_children(table):
    script = "trap '' HUP; sleep 60 & echo up"
    async with asyncio.timeout(5):
        output, ended = await run(table, bash(script, terminal=TerminalSize(24, 80)))
    assert (output, ended) == (b"up\r\n", FINE)


async def test_command__terminal_hangup_is_immediate(table):
    script = "exec 0<&- 1>&- 2>&-; exec sleep 60"
    command = await table.start(bash(script, terminal=TerminalSize(24, 80)))
    command.follow()
    before = time.process_time()
    await asyncio.sleep(0.5)
    assert time.process_time() - before < 0.1
    command.signal(signal.SIGKILL)
    await command.held.ended
