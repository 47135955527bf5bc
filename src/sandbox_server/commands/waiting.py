import asyncio
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta

from sandbox_server.commands.recordings import Recordings
from sandbox_server.commands.repository import CommandRepository
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.commands import COMMAND_LIVING, CommandState
from sandbox_server.domain.errors import CommandNotStarted
from sandbox_server.log.notifications import LogNotifications

ENDED_STATES = frozenset(CommandState) - COMMAND_LIVING
STARTED_STATES = frozenset(CommandState) - {CommandState.STARTING}

_POLL_INTERVAL_S = 2.0
_RECONNECT_TIMEOUT = timedelta(seconds=5)


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


class CommandWaiter:
    """Waits for states of commands: recorded here, or by another server."""

    def __init__(
        self, sessions: Sessions, recordings: Recordings, log_notifications: LogNotifications
    ) -> None:
        self._sessions = sessions
        self._recordings = recordings
        self._log_notifications = log_notifications
        self._waits = CallerWaits()

    def end(self) -> None:
        """End all waits, because the server is about to stop."""
        self._waits.end()

    async def wait_until(
        self, command: Command, states: Collection[CommandState], *, wait: timedelta
    ) -> Command:
        """Return the command once it has one of the states, or as it is when the wait is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait.total_seconds()
        recording = self._recordings.find(command.id)
        if recording is not None:
            ended = states is ENDED_STATES
            await self._waits.wait_for(recording.finished if ended else recording.started, wait)
            command = recording.row
        with self._log_notifications.follow(f"command/{command.id}") as log_grew:
            while command.state not in states and (left := self._seconds_left(until)) > 0:
                row = await self._read(command)
                if row is None or row.state in states:
                    return row or command
                command = row
                await self._waits.wait_for(log_grew, timedelta(seconds=min(left, _POLL_INTERVAL_S)))
                log_grew.clear()
        return command

    async def wait_connected(
        self, command_id: str, log_grew: asyncio.Event, *, woken: bool
    ) -> None:
        """Wait until the recorder has reconnected to the command, so that no output is lost."""
        recording = self._recordings.find(command_id)
        if recording is not None:
            await wait_for_event(recording.connected, _RECONNECT_TIMEOUT)
        elif woken:
            await wait_for_event(log_grew, _RECONNECT_TIMEOUT)

    def _seconds_left(self, until: float) -> float:
        return 0 if self._waits.have_ended else until - asyncio.get_running_loop().time()

    async def _read(self, command: Command) -> Command | None:
        async with without_transaction(self._sessions) as session:
            return await CommandRepository(session).find(
                command.id, sandbox_id=command.sandbox_id, tenant_id=command.tenant_id
            )


async def wait_for_event(event: asyncio.Event, wait: timedelta) -> None:
    """Wait for the event, but not longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait.total_seconds()):
            await event.wait()


def require_started(command: Command) -> Command:
    """Raise `CommandNotStarted` if the command failed to start."""
    if command.state is CommandState.FAILED:
        raise CommandNotStarted(command.state_reason or "reason not recorded")
    return command


def is_pending(command: Command) -> bool:
    """Return whether the request still waits: for the start of a background command, for the end of any other."""
    awaited = {CommandState.STARTING} if command.background else COMMAND_LIVING
    return command.state in awaited
