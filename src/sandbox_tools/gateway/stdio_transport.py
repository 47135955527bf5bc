import asyncio
import contextlib
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from sandbox_tools.gateway import process_guard
from sandbox_tools.gateway.connection import MAX_MESSAGE, Connection
from sandbox_tools.gateway.errors import UpstreamError
from sandbox_tools.gateway.server_config import LaunchSpec

_MAX_INVALID_BYTES = 1 << 20
_CHUNK = 1 << 16
_EXIT_SECONDS = 1.0
_GUARD_SECONDS = 6.0


@asynccontextmanager
async def over_stdio(
    launch: LaunchSpec, *, directory: Path, log: Path
) -> AsyncIterator[Connection]:
    """Start a server and connect to its stdin and stdout; its processes end with the context.

    mcp's own client is not used: it reads lines of any length and logs each invalid one, but servers are not trusted.
    """
    starting = asyncio.ensure_future(_start_upstream(launch, directory, log))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio would kill the guard, which could then not end the server's processes.
        await _uninterrupted(_end(await starting))
        raise
    try:
        inbox, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, outbox = anyio.create_memory_object_stream[SessionMessage](0)
        connection = Connection(received, sent, reports_exit=True)
        pumps = [
            asyncio.create_task(_read(process, inbox, connection)),
            asyncio.create_task(_write(process, outbox)),
        ]
        try:
            yield connection
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for stream in (inbox, received, sent, outbox):
                stream.close()
    finally:
        await _uninterrupted(_end(process))


async def _start_upstream(launch: LaunchSpec, directory: Path, log: Path) -> Process:
    cwd = directory / os.path.expanduser(launch.cwd or ".")  # noqa: PTH111 - Path.expanduser raises for unknown users
    if not cwd.is_dir():
        raise UpstreamError("Its cwd is not a directory.", str(cwd))
    program = shutil.which(launch.command, path=launch.env.get("PATH"))
    if program is None and not (os.sep in launch.command and (cwd / launch.command).is_file()):
        raise UpstreamError(
            "Its command is not installed.", f"{launch.command!r} was not found in PATH."
        )
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), str(log)),
        *(launch.command, *launch.args),
        stdin=PIPE,
        stdout=PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=cwd,
        env=dict(launch.env),
        start_new_session=True,
    )


async def _read(process: Process, inbox: Any, connection: Connection) -> None:
    """Forward MCP messages; other lines, such as banners, are ignored."""
    assert process.stdout is not None
    garbage = 0
    async with inbox:
        async for line in _lines(process.stdout):
            try:
                message = _parsed(line)
            except (ValueError, RecursionError):
                garbage += len(line) + 1
                if garbage > _MAX_INVALID_BYTES:
                    connection.end(UpstreamError("Its stdout is not MCP."))
                    return
            else:
                await inbox.send(SessionMessage(message))
        connection.end(await _exit_failure(process))


def _parsed(line: bytes) -> JSONRPCMessage:
    """Parse a message; lone surrogates, which pydantic rejects, become question marks."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        whole = json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")
        return jsonrpc_message_adapter.validate_json(whole, by_name=False)


async def _lines(stdout: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Split into lines; a line that exceeds the maximum message is yielded in parts."""
    begun = bytearray()
    while chunk := await stdout.read(_CHUNK):
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            yield bytes(begun) + line
            begun.clear()
        begun += rest
        if len(begun) > MAX_MESSAGE:
            yield bytes(begun)
            begun.clear()


async def _exit_failure(process: Process) -> UpstreamError:
    try:
        status = await asyncio.wait_for(process.wait(), _EXIT_SECONDS)
    except TimeoutError:
        return UpstreamError("It closed its stdout.")
    return UpstreamError(f"Its process ended with status {status}.")


async def _write(process: Process, outbox: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it is ending; the reader reports it
        async with outbox:
            async for message in outbox:
                document = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(document.encode() + b"\n")
                await process.stdin.drain()


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Wait for completion, even if anyio's cancel scopes cancel the caller repeatedly."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


async def _end(process: Process) -> None:
    """Close stdin, which asks a server to exit; the guard terminates it otherwise."""
    assert process.stdin is not None
    process.stdin.close()
    # asyncio reports the end of a process only after EOF on its stdout.
    draining = asyncio.create_task(_drain(process))
    for seconds, end in (
        (_EXIT_SECONDS, process.terminate),
        (_GUARD_SECONDS, process.kill),
    ):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            break
        with contextlib.suppress(ProcessLookupError):
            end()
    else:
        # A process that the guard may not signal holds the pipe open.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
    await process.wait()
    draining.cancel()


async def _drain(process: Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(_CHUNK):
        pass
