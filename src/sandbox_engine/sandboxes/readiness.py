import asyncio
from datetime import timedelta

from sandbox_engine.sandboxes import shell
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.shell import ShellCommand

_FIRST_PAUSE = timedelta(seconds=0.05)
_LINGER = timedelta(seconds=0.5)
_LONGEST_PAUSE = timedelta(seconds=1)


async def wait_ready(sandbox: Sandbox, command: ShellCommand) -> None:
    """Run the command again and again until it succeeds."""
    pause = _FIRST_PAUSE
    while not (await shell.run(sandbox, command, linger=_LINGER)).succeeded:
        await asyncio.sleep(pause.total_seconds())
        pause = min(2 * pause, _LONGEST_PAUSE)
