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
from sandbox_tools.shell.process_tree import terminate_process_tree
from sandbox_tools.shell.shell_monitor import wait_for_exit

_CHUNK_BYTES = 64 * 1024
_MAX_PIPE_BYTES = 1024 * 1024  # what a pipe may hold at most, unless root made it larger
_PROGRESS_INTERVAL_S = 1.0

ReportProgress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    exit_code: int | None  # negative: the signal that ended it
    timed_out: bool
    survived: bool  # not all of it could be killed
    left_running: bool  # processes of it still hold its output open


async def run(
    command: str,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: timedelta,
    output: CommandOutput,
    report: ReportProgress,
) -> CommandResult:
    """Run a command until it ends, or its time is over, or the call is cancelled, and all of it ends then."""
    with _started(command, cwd=cwd, environment=environment) as (process, reading):
        survived = False
        with _read_into(output, reading):
            try:
                timed_out = not await _wait(process.pid, timeout, output, report)
            finally:
                if process.poll() is None:
                    with anyio.CancelScope(shield=True):
                        survived = not await terminate_process_tree(process.pid)
                    process.poll()  # where the call was cancelled, nobody asks for its end any more
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
            # Not asyncio's: uvloop leaves the pipe open in the command a second time, and so in all that it starts.
            process = subprocess.Popen(  # noqa: S603 - it is what is asked for
                ("bash", "-lc", command),  # noqa: S607 - the one that a person's PATH has
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
    """Tell now and then how far it is; false if it has not ended in time."""
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
    """Read what was written before the end; whether others may write more."""
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
    """Have another process write down what comes, so that nobody who still writes waits or is killed for it."""
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
