import asyncio
from dataclasses import replace
from datetime import timedelta

from sandbox_engine.commands import Command
from sandbox_engine.commands.transcript import OnLine
from sandbox_engine.sandboxes import shell
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.shell import NotStarted, ShellCommand
from sandbox_engine.system.errors import StartFailed

_FIRST_PAUSE = timedelta(seconds=0.05)
_LINGER = timedelta(seconds=0.5)
_LONGEST_PAUSE = timedelta(seconds=1)


# E2B's behaviour for a start command without a ready command.
_DEFAULT_READY_COMMAND = "sleep 20"


async def run_start_command(
    sandbox: Sandbox, *, timeout: timedelta, on_line: OnLine | None = None
) -> None:
    """Run the template's start command and wait until its ready command succeeds."""
    if not sandbox.record.starts_something:
        return
    try:
        with sandbox.starting_up():
            async with asyncio.timeout(timeout.total_seconds()):
                await _start_up(sandbox, on_line)
    except NotStarted as error:
        raise StartFailed(str(error)) from error
    except TimeoutError as error:
        seconds = timeout.total_seconds()
        raise StartFailed(
            f"its ready command did not succeed within {seconds:g} s: {_ready_command(sandbox)}"
        ) from error


async def _start_up(sandbox: Sandbox, on_line: OnLine | None) -> None:
    started = None
    if script := sandbox.record.start_command:
        started = await shell.start(sandbox, _command(sandbox, script))
    failing = asyncio.create_task(_wait_failure(started, on_line))
    asking = replace(_command(sandbox, _ready_command(sandbox)), is_noted=False)
    becoming_ready = asyncio.create_task(wait_ready(sandbox, asking))
    try:
        await asyncio.wait((failing, becoming_ready), return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        await becoming_ready
    finally:
        for task in (failing, becoming_ready):
            task.cancel()
        await asyncio.gather(failing, becoming_ready, return_exceptions=True)


async def _wait_failure(started: Command | None, on_line: OnLine | None) -> None:
    """Raise if the start command fails; it may end successfully."""
    if started is not None:
        finished = await shell.follow(started, on_line=on_line)
        if not finished.succeeded:
            status, output = finished.ended.error, finished.output
            raise StartFailed(f"its start command ended with {status}: {output}".rstrip(": \n"))


def _ready_command(sandbox: Sandbox) -> str:
    return sandbox.record.ready_command or _DEFAULT_READY_COMMAND


def _command(sandbox: Sandbox, script: str) -> ShellCommand:
    return ShellCommand(script, sandbox.default_user, sandbox.default_workdir)


async def wait_ready(sandbox: Sandbox, command: ShellCommand) -> None:
    """Repeat the command until it succeeds."""
    pause = _FIRST_PAUSE
    while not (await shell.run(sandbox, command, linger=_LINGER)).succeeded:
        await asyncio.sleep(pause.total_seconds())
        pause = min(2 * pause, _LONGEST_PAUSE)
