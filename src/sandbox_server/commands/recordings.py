import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Coroutine
from datetime import timedelta

from sandbox_server.commands.command_log import CommandLog, StoredRecord
from sandbox_server.commands.recorder import Recorder
from sandbox_server.commands.recording import Recording, time_left
from sandbox_server.commands.recording_context import Means
from sandbox_server.commands.recording_repository import LEFT, RecordingRepository
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

_BEATS_PER_LEASE = 3
_CLAIM = 100
# In a flood a terminal has to show what it does now; the rest of what it showed matters less.
_MOST_HELD_OF_TERMINAL = 2 * LARGEST_PIECE


def open_recordings(
    sessions: Sessions,
    using: SandboxAccess,
    awake: ActivityTracker,
    changes: Changes,
    notifications: Notifications,
    *,
    lease: timedelta,
    bound: int,
) -> "Recordings":
    """Put together what records commands, under a name that no other process has."""
    recorder = Recorder(sessions, name=secrets.token_hex(8), lease=lease)
    means = Means(sessions, recorder, using, changes, awake)
    return Recordings(means, notifications, bound=bound)


class Recordings:
    """The commands that this process records: those that it starts, and those that others left."""

    def __init__(self, means: Means, notifications: Notifications, *, bound: int) -> None:
        self._means = means
        self._bound = bound
        self._running: dict[str, Recording] = {}
        self._tasks: dict[Recording, asyncio.Task[None]] = {}
        self._living: Counter[str] = Counter()  # of each sandbox, and of each tenant
        self._left = asyncio.Event()
        self._looking = asyncio.Lock()
        self._has_closed = False
        notifications.listen(LEFT, lambda _: self._left.set())

    @property
    def recorder_name(self) -> str:
        return self._means.recorder.name

    @property
    def lease(self) -> timedelta:
        return self._means.recorder.lease

    def find(self, command_id: str) -> Recording | None:
        return self._running.get(command_id)

    def count(self, owner_id: str) -> int:
        """Count the commands of a sandbox, or of a tenant, that are recorded here."""
        return self._living[owner_id]

    def begin(self, row: Command, used: UsableSandbox, process: NewProcess) -> Recording:
        """Start a command that has been written down; it goes on whatever becomes of who asked for it."""
        recording = Recording(row, self._new_log(row), self._means, left=None)
        self._run(recording, recording.begin(used, process))
        return recording

    async def run(self) -> None:
        """Keep the leases, and go on with what others have left, until cancelled."""
        beat = (self.lease / _BEATS_PER_LEASE).total_seconds()
        while True:
            self._left.clear()
            async with self._looking:
                await self._look()
            try:
                async with asyncio.timeout(beat):
                    await self._left.wait()
            except TimeoutError:
                pass

    async def close(self, *, within: timedelta) -> None:
        """Store what there is, and leave the commands to others."""
        self._has_closed = True
        try:
            async with asyncio.timeout(within.total_seconds()):
                async with self._looking:
                    pass
                await self._hand_over()
        except (TimeoutError, *OUTAGES) as error:
            log.warning("commands not handed over error=%r", error)
        await self._means.recorder.close()

    async def _hand_over(self) -> None:
        left = list(self._running)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._means.recorder.flush()
        async with without_transaction(self._means.sessions) as session:
            await RecordingRepository(session).release(left, by=self.recorder_name)

    async def _look(self) -> None:
        if self._has_closed:  # what it leaves is for others
            return
        try:
            await self._extend()
            await self._take_over()
        except OUTAGES as error:
            log.warning("commands not looked after count=%d error=%r", len(self._running), error)

    async def _extend(self) -> None:
        held = list(self._running)
        if not held:
            return
        async with without_transaction(self._means.sessions) as session:
            ours = await RecordingRepository(session).extend(
                held, by=self.recorder_name, lease=self.lease
            )
        for command_id in set(held) - ours:
            recording = self._running.get(command_id)
            if recording is not None and not recording.over.is_set():
                await self._check(recording)

    async def _check(self, recording: Recording) -> None:
        """Stop recording what is another's by now; what has just ended here is not."""
        async with without_transaction(self._means.sessions) as session:
            repository = RecordingRepository(session)
            if not await repository.is_ours(recording.row.id, by=self.recorder_name):
                log.warning("command is recorded elsewhere command_id=%s", recording.row.id)
                recording.forget()
                self._means.recorder.drop(recording)

    async def _take_over(self) -> None:
        async with without_transaction(self._means.sessions) as session:
            repository = RecordingRepository(session)
            claimed = await repository.claim_lapsed(
                by=self.recorder_name, lease=self.lease, limit=_CLAIM
            )
            for row, now in claimed:
                command_log = self._new_log(row)
                command_log.restore(
                    StoredRecord(one.seq, RecordType(one.type), one.offset, one.length, one.data)
                    for one in await repository.list_stored(row.id)
                )
                recording = Recording(row, command_log, self._means, left=time_left(row, now))
                if row.id not in self._running:
                    self._run(recording, recording.go_on())
        if len(claimed) == _CLAIM:
            self._left.set()

    def _new_log(self, row: Command) -> CommandLog:
        is_terminal = row.kind is CommandKind.TERMINAL
        return CommandLog(
            bound=self._bound,
            last_seq=row.last_seq,
            most_held=_MOST_HELD_OF_TERMINAL if is_terminal else None,
        )

    def _run(self, recording: Recording, work: Coroutine[None, None, None]) -> None:
        row = recording.row
        self._running[row.id] = recording
        self._living.update((row.sandbox_id, row.tenant_id))
        task = asyncio.create_task(self._see_through(recording, work), name=f"command {row.id}")
        self._tasks[recording] = task

    async def _see_through(self, recording: Recording, work: Coroutine[None, None, None]) -> None:
        row = recording.row
        try:
            await work
            await recording.over.wait()
        except Exception:
            log.exception("recording failed command_id=%s", row.id)
            recording.forget()
            self._means.recorder.drop(recording)
        finally:
            del self._tasks[recording]
            del self._running[row.id]
            for owner_id in (row.sandbox_id, row.tenant_id):
                self._living[owner_id] -= 1
                if not self._living[owner_id]:
                    del self._living[owner_id]
