import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Coroutine
from datetime import timedelta
from typing import TypeVar

from sandbox_server.commands.command_log import CommandLog, StoredRecord
from sandbox_server.commands.recorder import Recorder
from sandbox_server.commands.recording import Recording, time_left
from sandbox_server.commands.recording_context import RecordingContext
from sandbox_server.commands.recording_repository import (
    INTERRUPTED_CHANNEL,
    RELEASED_CHANNEL,
    RecordingRepository,
)
from sandbox_server.commands.retention import LARGEST_PIECE
from sandbox_server.db.models import Command
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.domain.commands import CommandKind
from sandbox_server.log.records import RecordType
from sandbox_server.providers.protocol.processes import NewProcess
from sandbox_server.sandboxes.activity import ActivityTracker
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox

log = logging.getLogger(__name__)

AnyRecording = TypeVar("AnyRecording", bound=Recording)

_RENEWALS_PER_LEASE = 3
_CLAIM_LIMIT = 100
# In a flood a terminal shows current output; older output matters less.
_TERMINAL_MAX_HELD = 2 * LARGEST_PIECE


def open_recordings(
    sessions: Sessions,
    sandbox_access: SandboxAccess,
    activity: ActivityTracker,
    changes: Changes,
    notifications: Notifications,
    *,
    lease: timedelta,
    bound: int,
) -> "Recordings":
    """Create the recordings of this process, under a unique recorder name."""
    recorder = Recorder(sessions, name=secrets.token_hex(8), lease=lease)
    context = RecordingContext(sessions, recorder, sandbox_access, changes, activity)
    return Recordings(context, notifications, bound=bound)


class Recordings:
    """The commands that this process records: those it starts, and those it takes over from other servers."""

    def __init__(
        self, context: RecordingContext, notifications: Notifications, *, bound: int
    ) -> None:
        self._context = context
        self._bound = bound
        self._running: dict[str, Recording] = {}
        self._tasks: dict[Recording, asyncio.Task[None]] = {}
        self._counts: Counter[str] = Counter()  # per sandbox and per tenant
        self._released = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._has_closed = False
        notifications.listen(RELEASED_CHANNEL, lambda _: self._released.set())
        notifications.listen(INTERRUPTED_CHANNEL, self._interrupt)

    @property
    def recorder_name(self) -> str:
        return self._context.recorder.name

    @property
    def lease(self) -> timedelta:
        return self._context.recorder.lease

    def find(self, command_id: str) -> Recording | None:
        return self._running.get(command_id)

    def count(self, owner_id: str) -> int:
        """Count the commands of a sandbox or a tenant that are recorded by this process."""
        return self._counts[owner_id]

    def begin(self, row: Command, used: UsableSandbox, process: NewProcess) -> Recording:
        """Start a command whose row exists. It continues if the caller disconnects."""
        recording = self.open(row, Recording)
        self.run_recording(recording, recording.begin(used, process))
        return recording

    def open(self, row: Command, kind: type[AnyRecording]) -> AnyRecording:
        """Make a recording of a command whose row exists; pass it to `run_recording`."""
        return kind(row, self._new_log(row), self._context, left=None)

    def _interrupt(self, command_id: str | None) -> None:
        if (recording := self._running.get(command_id or "")) is not None:
            recording.interrupt()

    async def run(self) -> None:
        """Renew the leases, and take over released commands, until cancelled."""
        interval = (self.lease / _RENEWALS_PER_LEASE).total_seconds()
        while True:
            self._released.clear()
            async with self._claiming:
                await self._renew_and_claim()
            try:
                async with asyncio.timeout(interval):
                    await self._released.wait()
            except TimeoutError:
                pass

    async def close(self, *, within: timedelta) -> None:
        """Store all output, and release the commands to other servers."""
        self._has_closed = True
        try:
            async with asyncio.timeout(within.total_seconds()):
                async with self._claiming:
                    pass
                await self._hand_over()
        except (TimeoutError, *OUTAGES) as error:
            log.warning("commands not handed over error=%r", error)
        await self._context.recorder.close()

    async def _hand_over(self) -> None:
        left = list(self._running)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._context.recorder.flush()
        async with without_transaction(self._context.sessions) as session:
            await RecordingRepository(session).release(left, by=self.recorder_name)

    async def _renew_and_claim(self) -> None:
        if self._has_closed:  # released commands are for other servers
            return
        try:
            await self._renew_leases()
            await self._claim_lapsed()
        except OUTAGES as error:
            log.warning("leases not renewed count=%d error=%r", len(self._running), error)

    async def _renew_leases(self) -> None:
        held = list(self._running)
        if not held:
            return
        async with without_transaction(self._context.sessions) as session:
            ours = await RecordingRepository(session).extend(
                held, by=self.recorder_name, lease=self.lease
            )
        for command_id in set(held) - ours:
            recording = self._running.get(command_id)
            if recording is not None and not recording.finished.is_set():
                await self._check_lease(recording)

    async def _check_lease(self, recording: Recording) -> None:
        """Stop recording a command that another server has claimed. A command that just ended here is no such case."""
        async with without_transaction(self._context.sessions) as session:
            repository = RecordingRepository(session)
            if not await repository.is_recorded_by(recording.row.id, by=self.recorder_name):
                log.warning("command is recorded elsewhere command_id=%s", recording.row.id)
                recording.forget()
                self._context.recorder.drop(recording)

    async def _claim_lapsed(self) -> None:
        async with without_transaction(self._context.sessions) as session:
            repository = RecordingRepository(session)
            claimed = await repository.claim_lapsed(
                by=self.recorder_name, lease=self.lease, limit=_CLAIM_LIMIT
            )
            for row, now in claimed:
                command_log = self._new_log(row)
                command_log.restore(
                    StoredRecord(
                        stored.seq,
                        RecordType(stored.type),
                        stored.offset,
                        stored.length,
                        stored.data,
                    )
                    for stored in await repository.list_stored(row.id)
                )
                recording = Recording(row, command_log, self._context, left=time_left(row, now))
                if row.id not in self._running:
                    self.run_recording(recording, recording.take_over())
        if len(claimed) == _CLAIM_LIMIT:
            self._released.set()

    def _new_log(self, row: Command) -> CommandLog:
        is_terminal = row.kind is CommandKind.TERMINAL
        return CommandLog(
            bound=self._bound,
            last_seq=row.last_seq,
            max_held=_TERMINAL_MAX_HELD if is_terminal else None,
        )

    def run_recording(self, recording: Recording, coroutine: Coroutine[None, None, None]) -> None:
        """Record in the background, until the command has ended and its end is stored."""
        row = recording.row
        self._running[row.id] = recording
        self._counts.update((row.sandbox_id, row.tenant_id))
        task = asyncio.create_task(self._supervise(recording, coroutine), name=f"command {row.id}")
        self._tasks[recording] = task

    async def _supervise(
        self, recording: Recording, coroutine: Coroutine[None, None, None]
    ) -> None:
        row = recording.row
        try:
            await coroutine
            await recording.finished.wait()
        except Exception:
            log.exception("recording failed command_id=%s", row.id)
            recording.forget()
            self._context.recorder.drop(recording)
        finally:
            del self._tasks[recording]
            del self._running[row.id]
            for owner_id in (row.sandbox_id, row.tenant_id):
                self._counts[owner_id] -= 1
                if not self._counts[owner_id]:
                    del self._counts[owner_id]
