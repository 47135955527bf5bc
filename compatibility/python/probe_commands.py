import asyncio
from inspect import signature
from typing import Any

from e2b.sandbox.commands.command_handle import PtySize
from harness import Kit, probe
from probe_sandboxes import until


async def cat(kit: Kit) -> tuple[Any, Any]:
    """Start a command that echoes its input."""
    commands = (await kit.shared()).commands
    options = {"stdin": True} if "stdin" in signature(commands.run).parameters else {}
    return commands, await kit(commands.run, "cat", background=True, **options)


async def is_listed(kit: Kit, pid: int) -> bool:
    commands = (await kit.shared()).commands
    return pid in [one.pid for one in await kit(commands.list)]


@probe("commands.run", "CommandHandle.wait")
async def run(kit: Kit) -> None:
    commands = (await kit.shared()).commands
    done = await kit(commands.run, "echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)
    command = await kit(commands.run, "echo $PWD", background=True, cwd="/srv")
    assert (await kit(command.wait)).stdout == "/srv\n"


@probe("commands.list")
async def list_commands(kit: Kit) -> None:
    _, command = await cat(kit)
    assert await is_listed(kit, command.pid)
    await kit(command.kill)


@probe("commands.kill")
async def kill(kit: Kit) -> None:
    commands, command = await cat(kit)
    assert await kit(commands.kill, command.pid)

    async def is_gone() -> bool:
        return not await is_listed(kit, command.pid)

    await until(is_gone)


@probe("CommandHandle.kill")
async def kill_by_handle(kit: Kit) -> None:
    _, command = await cat(kit)
    assert await kit(command.kill)


@probe("commands.connect")
async def connect(kit: Kit) -> None:
    commands = (await kit.shared()).commands
    command = await kit(commands.run, "sleep 2; echo late", background=True)
    again = await kit(commands.connect, command.pid)
    assert (await kit(again.wait)).stdout == "late\n"


@probe("CommandHandle.disconnect")
async def disconnect(kit: Kit) -> None:
    commands, command = await cat(kit)
    await kit(command.disconnect)
    assert await is_listed(kit, command.pid)
    await kit(commands.kill, command.pid)


@probe("commands.send_stdin", "commands.close_stdin")
async def send_stdin(kit: Kit) -> None:
    commands, command = await cat(kit)
    await kit(commands.send_stdin, command.pid, "typed\n")
    if hasattr(commands, "close_stdin"):
        await kit(commands.close_stdin, command.pid)
        assert (await kit(command.wait)).stdout == "typed\n"
    else:
        await kit(commands.kill, command.pid)


@probe("CommandHandle.send_stdin", "CommandHandle.close_stdin")
async def send_stdin_by_handle(kit: Kit) -> None:
    _, command = await cat(kit)
    await kit(command.send_stdin, "typed\n")
    await kit(command.close_stdin)
    assert (await kit(command.wait)).stdout == "typed\n"


@probe("commands.stream_input", "CommandInputHandle.send", "CommandInputHandle.close")
async def stream_input(kit: Kit) -> None:
    commands, command = await cat(kit)
    await _stream(kit, commands, command.pid, "a", "b\n")
    await kit(commands.close_stdin, command.pid)
    assert (await kit(command.wait)).stdout == "ab\n"


async def _stream(kit: Kit, part: Any, pid: int, *texts: str) -> None:
    if not kit.is_async:
        part.stream_input(pid, texts)
        return
    stream = await kit(part.stream_input, pid)
    for text in texts:
        await stream.send(text)
    await stream.close()


async def terminal(kit: Kit) -> tuple[Any, Any, bytearray]:
    """Open a terminal and collect what it shows."""
    pty = (await kit.shared()).pty
    size = PtySize(24, 80)
    shown = bytearray()
    if kit.is_async:
        return pty, await kit(pty.create, size, shown.extend), shown
    return pty, await kit(pty.create, size), shown


async def finish(kit: Kit, handle: Any, shown: bytearray) -> bytes:
    """Follow a terminal to its end."""
    if kit.is_async:
        await asyncio.wait_for(handle.wait(), 30)
    else:
        handle.wait(on_pty=shown.extend)
    return bytes(shown)


@probe("pty.create", "pty.send_stdin")
async def create_terminal(kit: Kit) -> None:
    pty, handle, shown = await terminal(kit)
    await kit(pty.send_stdin, handle.pid, b"echo $((6*7)); exit\n")
    assert b"42" in await finish(kit, handle, shown)


@probe("pty.resize")
async def resize(kit: Kit) -> None:
    pty, handle, shown = await terminal(kit)
    await kit(pty.resize, handle.pid, PtySize(50, 133))
    await kit(pty.send_stdin, handle.pid, b"stty size; exit\n")
    assert b"50 133" in await finish(kit, handle, shown)


@probe("pty.kill")
async def kill_terminal(kit: Kit) -> None:
    pty, handle, _ = await terminal(kit)
    assert await kit(pty.kill, handle.pid)


@probe("pty.connect")
async def connect_terminal(kit: Kit) -> None:
    pty, handle, _ = await terminal(kit)
    shown = bytearray()
    if kit.is_async:
        again = await kit(pty.connect, handle.pid, shown.extend)
    else:
        again = await kit(pty.connect, handle.pid)
    await kit(pty.send_stdin, handle.pid, b"echo $((6*7)); exit\n")
    assert b"42" in await finish(kit, again, shown)


@probe("pty.stream_input")
async def stream_terminal_input(kit: Kit) -> None:
    pty, handle, shown = await terminal(kit)
    await _stream(kit, pty, handle.pid, "echo $((6*7)); exit\n")
    assert b"42" in await finish(kit, handle, shown)
