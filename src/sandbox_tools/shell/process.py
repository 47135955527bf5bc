import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anyio

from sandbox_tools.shell.command_output import CommandOutput
from sandbox_tools.shell.shell_monitor import wait_for_exit
from sandbox_tools.toolkit.process_tree import terminate_process_tree

_CHUNK_BYTES = 64 * 1024
_MAX_PIPE_BYTES = 1024 * 1024  # maximum size of a pipe without privileges
_PROGRESS_INTERVAL_S = 1.0

ReportProgress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    exit_code: int | None  # negative: signal number
    timed_out: bool
    survived: bool  # some processes could not be killed
    left_running: bool  # its processes still hold the output pipe open


async def run(
    command: str,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: timedelta,
    output: CommandOutput,
    report: ReportProgress,
) -> CommandResult:
    """Run a command; on timeout or cancellation terminate its process tree."""
    with _started(command, cwd=cwd, environment=environment) as (process, reading):
        survived = False
        with _read_into(output, reading):
            try:
                timed_out = not await _wait(process.pid, timeout, output, report)
            finally:
                if process.poll() is None:
                    with anyio.CancelScope(shield=True):
                        survived = not await terminate_process_tree(process.pid)
                    process.poll()  # reap it even if the call was cancelled
        left_running = _read_remaining(output, reading)
        if left_running:
            _drain_in_background(output, reading)
    return CommandResult(
        exit_code=process.poll(),
        timed_out=timed_out,
        survived=survived,
        left_running=left_running,
    )


@contextmanager
def _started(
    command: str, *, cwd: Path, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        try:
            # Not asyncio's: uvloop leaks a second copy of the pipe into the command and its children.
            process = subprocess.Popen(  # noqa: S603 - running commands is the purpose
                ("bash", "-lc", command),  # noqa: S607 - bash from PATH
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        yield process, reading
    finally:
        os.close(reading)


async def _wait(
    pid: int, timeout: timedelta, output: CommandOutput, report: ReportProgress
) -> bool:
    """Report progress until the process ends; return False on timeout."""
    now = asyncio.get_running_loop().time
    start = now()
    ended = asyncio.ensure_future(wait_for_exit(pid))
    try:
        while (left := timeout.total_seconds() - (now() - start)) > 0:
            await asyncio.wait({ended}, timeout=min(left, _PROGRESS_INTERVAL_S))
            if ended.done():
                return True
            await report(now() - start, output.last_line())
        return False
    finally:
        ended.cancel()


@contextmanager
def _read_into(output: CommandOutput, reading: int) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = os.read(reading, _CHUNK_BYTES)
        if data:
            output.add(data)
        else:
            loop.remove_reader(reading)

    loop.add_reader(reading, read)
    try:
        yield
    finally:
        loop.remove_reader(reading)


def _read_remaining(output: CommandOutput, reading: int) -> bool:
    """Read what is left in the pipe; return whether other processes still hold it open."""
    read = 0
    while read < _MAX_PIPE_BYTES:
        try:
            data = os.read(reading, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        output.add(data)
        read += len(data)
    return True


def _drain_in_background(output: CommandOutput, reading: int) -> None:
    """Let a `cat` process drain the pipe, so that remaining writers neither block nor get SIGPIPE."""
    os.set_blocking(reading, True)
    kept = os.open(output.spill() or os.devnull, os.O_WRONLY | os.O_APPEND)
    try:
        subprocess.Popen(
            ("cat",),  # noqa: S607
            stdin=reading,
            stdout=kept,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(kept)
