import asyncio
from contextlib import suppress
from datetime import timedelta

from sandbox_server.db.models import Command
from sandbox_server.domain.commands import COMMAND_LIVING, CommandState
from sandbox_server.domain.errors import CommandNotStarted


class CallerWaits:
    """Waits of callers, all of which end when the server stops."""

    def __init__(self) -> None:
        self.have_ended = False
        self._timeouts: set[asyncio.Timeout] = set()

    async def wait_for(self, event: asyncio.Event, wait: timedelta) -> None:
        if self.have_ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait.total_seconds()) as timeout:
                self._timeouts.add(timeout)
                try:
                    await event.wait()
                finally:
                    self._timeouts.discard(timeout)

    def end(self) -> None:
        """End all waits, as if they had timed out."""
        self.have_ended = True
        now = asyncio.get_running_loop().time()
        for timeout in self._timeouts:
            timeout.reschedule(now)


def require_started(command: Command) -> Command:
    """Raise `CommandNotStarted` if the command failed to start."""
    if command.state is CommandState.FAILED:
        raise CommandNotStarted(command.state_reason or "reason not recorded")
    return command


def is_pending(command: Command) -> bool:
    """Return whether the request still waits: for the start of a background command, for the end of any other."""
    awaited = {CommandState.STARTING} if command.background else COMMAND_LIVING
    return command.state in awaited
