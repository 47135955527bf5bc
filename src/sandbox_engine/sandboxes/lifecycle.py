r"""Lifecycle of a sandbox.

    creating -> reserved -> running <-> paused
        \___________________/           /
         `----------> killing <--------'

A reserved sandbox is ready and nobody's yet: no caller sees it until it is handed out.

The record is written before each act, so that after a crash at any point the next engine knows
what was meant. A container that ends by itself leaves a paused sandbox with all its files.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from sandbox_engine.machine.capacity import START_DISK, START_MEMORY, Capacity
from sandbox_engine.records.journal import Journal
from sandbox_engine.records.sandbox import OnTimeout, SandboxRecord, State
from sandbox_engine.records.sandbox_store import RecordStore
from sandbox_engine.sandboxes.containers import Containers
from sandbox_engine.sandboxes.deadlines import RETRY_AFTER, Deadlines
from sandbox_engine.sandboxes.pending_starts import PendingStarts
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.system.errors import EngineError, SandboxNotFound, StartFailed
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)


class Lifecycle:
    """Owns the records and the running sandboxes, and carries out state transitions.

    Callers of methods that take a record hold the sandbox's lock (`transition`).
    """

    def __init__(
        self,
        store: RecordStore,
        containers: Containers,
        *,
        capacity: Capacity,
        start_timeout: timedelta,
    ) -> None:
        self.records: dict[str, SandboxRecord] = {}
        self.live: dict[str, Sandbox] = {}
        self.deadlines = Deadlines(self._expire)
        self._store = store
        self._containers = containers
        self._capacity = capacity
        self._pending_starts = PendingStarts(timeout=start_timeout)
        self._locks: dict[str, asyncio.Lock] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._on_removed: list[Callable[[], Awaitable[None]]] = []

    def transition(self, sandbox_id: str) -> asyncio.Lock:
        """Return the lock that serializes the sandbox's transitions."""
        if sandbox_id not in self.records:
            raise SandboxNotFound(sandbox_id)
        return self._locks.setdefault(sandbox_id, asyncio.Lock())

    def journal(self, record: SandboxRecord) -> Journal:
        """Return the sandbox's journal."""
        return self._store.journal(record.id)

    def on_removed(self, hear: Callable[[], Awaitable[None]]) -> None:
        """Register a callback for deleted sandboxes."""
        self._on_removed.append(hear)

    def cancel_start(self, sandbox_id: str, reason: str) -> None:
        """Cancel the start of a sandbox to release its lock."""
        self._pending_starts.cancel(sandbox_id, reason)

    async def create(self, record: SandboxRecord) -> None:
        """Write the record, then start the sandbox."""
        async with self._created(record) as sandbox:
            self._run(record, sandbox, record.timeout, _made(record))

    async def reserve(self, record: SandboxRecord) -> None:
        """Start a sandbox for the warm pool."""
        async with self._created(record) as sandbox:
            record.state = State.RESERVED
            self._store.save(record)
            self.take(record, sandbox)

    def assign(self, record: SandboxRecord) -> None:
        """Assign a reserved sandbox, whose record holds the request's options by now."""
        self._run(record, self.live[record.id], record.timeout, "created")

    async def resume(
        self, record: SandboxRecord, timeout: timedelta, *, keep_memory: bool = True
    ) -> None:
        """Resume a paused sandbox: thaw it, or start it from its files."""
        sandbox = self.live.get(record.id)
        if sandbox is not None and not keep_memory:
            await self._end_container(record, record.reason)
            sandbox = None
        if sandbox is None:
            with self._capacity.reserve(memory=START_MEMORY, disk=START_DISK):
                await self._restart(record, timeout)
            return
        with self._capacity.reserve(memory=sandbox.cgroup.swapped(), disk=START_DISK):
            self._containers.thaw(record)
            self._run(record, sandbox, timeout, "resumed")

    async def _restart(self, record: SandboxRecord, timeout: timedelta) -> None:
        try:
            sandbox = await self._bring_up(record)
        except (EngineError, OSError) as error:
            await self.container_lost(record, f"could not be resumed: {error}")
            raise StartFailed(f"The sandbox could not be resumed: {error}") from error
        self._run(record, sandbox, timeout, "resumed from its files")

    async def pause(self, record: SandboxRecord, reason: str, *, keep_memory: bool = True) -> None:
        """Pause a running sandbox once no command is starting in it."""
        sandbox = self.live[record.id]
        async with sandbox.pause_lock.exclusive():
            if keep_memory:
                await self._containers.freeze(record)
            before = record.ends_at
            record.filesystem_only = not keep_memory
            try:
                self._stop_running(record, reason)
            except OSError:
                self._thaw(record, ends_at=before)
                raise
        if keep_memory:
            sandbox.suspend(reason)
        else:
            await self._end_container(record, reason)
        await asyncio.to_thread(self._store.flush, record.id)

    async def kill(self, record: SandboxRecord, reason: str) -> None:
        """Kill the sandbox and delete its files; the engine retries what cannot be removed now."""
        record.state, record.reason = State.KILLING, reason
        with suppress(OSError):  # deleting must also work on a full disk
            self._store.save(record)
        await self._release(record, reason)
        try:
            await self._containers.remove(record)
        except (EngineError, OSError):
            log.exception("removing a sandbox failed", id=record.id)
            self.deadlines.arm(record.id, datetime.now(UTC) + RETRY_AFTER)
            return
        del self.records[record.id]
        self._locks.pop(record.id, None)
        log.info("removed", id=record.id, reason=reason)
        for hear in self._on_removed:
            await hear()

    async def container_lost(self, record: SandboxRecord, reason: str) -> None:
        """Mark the sandbox paused: its processes are gone, its files are kept."""
        await self._end_container(record, reason)
        log.warning("container lost", id=record.id, reason=reason)

    def set_end(self, record: SandboxRecord, ends_at: datetime) -> None:
        """Change the deadline of a running sandbox."""
        record.ends_at = ends_at
        self._store.save(record)
        self.deadlines.arm(record.id, ends_at)

    async def apply_network_policy(self, record: SandboxRecord) -> None:
        """Apply the network policy of its record to a running sandbox."""
        record.policing = True
        self._store.save(record)
        await self._containers.apply_network_policy(record)
        record.policing = False
        self._store.save(record)

    def take(self, record: SandboxRecord, sandbox: Sandbox) -> None:
        """Start managing a running container."""
        if self.live.get(record.id) is not sandbox:
            self.live[record.id] = sandbox
            self._watches[record.id] = asyncio.create_task(self._watch(record, sandbox))
        if record.state is State.RUNNING:
            self.deadlines.arm(record.id, record.ends_at)

    async def close(self) -> None:
        """Stop managing all sandboxes; the next engine adopts them."""
        self._pending_starts.cancel_all("the engine is stopping")
        for watch in self._watches.values():
            watch.cancel()
        for sandbox in self.live.values():
            sandbox.release("the engine is stopping")

    @asynccontextmanager
    async def _created(self, record: SandboxRecord) -> AsyncIterator[Sandbox]:
        with self._capacity.reserve(memory=START_MEMORY, disk=START_DISK):
            self.records[record.id] = record
            async with self.transition(record.id):
                yield await self._create(record)

    async def _create(self, record: SandboxRecord) -> Sandbox:
        try:
            self._store.add(record)
            return await self._bring_up(record)
        except (EngineError, OSError) as error:
            log.error("create failed", id=record.id, error=error)
            await self.kill(record, "could not be started")
            raise StartFailed(f"The sandbox could not be started: {error}") from error

    async def _bring_up(self, record: SandboxRecord) -> Sandbox:
        """Start a new container with the template's start command."""
        with self._pending_starts.registered(record.id):
            sandbox = await self._containers.start(record)
            try:
                await self._pending_starts.run_start_command(sandbox)
            except BaseException:
                sandbox.close("start failed")
                raise
            return sandbox

    def _run(
        self, record: SandboxRecord, sandbox: Sandbox, timeout: timedelta, message: str
    ) -> None:
        record.state, record.reason, record.filesystem_only = State.RUNNING, "", False
        record.started_at = datetime.now(UTC)
        self.journal(record).note(message)
        self.take(record, sandbox)
        self.set_end(record, record.started_at + timeout)

    def _stop_running(self, record: SandboxRecord, reason: str) -> None:
        self.deadlines.disarm(record.id)
        if (record.state, record.reason) != (State.PAUSED, reason):
            self.journal(record).note(reason)
        record.state, record.reason = State.PAUSED, reason
        record.ends_at = datetime.now(UTC)
        self._store.save(record)

    def _thaw(self, record: SandboxRecord, *, ends_at: datetime) -> None:
        """Keep a sandbox running if a full disk prevents recording the pause."""
        record.state, record.reason, record.filesystem_only = State.RUNNING, "", False
        record.ends_at = ends_at
        self._containers.thaw(record)
        self.deadlines.arm(record.id, ends_at)

    async def _end_container(self, record: SandboxRecord, reason: str) -> None:
        await self._release(record, reason)
        try:
            await self._containers.stop(record)
        except (EngineError, OSError):  # leftovers are removed before the next start
            log.exception("removing a container failed", id=record.id)
        self._stop_running(record, reason)

    async def _release(self, record: SandboxRecord, reason: str) -> None:
        self.deadlines.disarm(record.id)
        watch = self._watches.pop(record.id, None)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
        sandbox = self.live.pop(record.id, None)
        if sandbox is not None:
            sandbox.close(reason)
            # Connections are cut before processes end: an SDK would take a complete stream for a
            # finished command.
            await asyncio.sleep(0)

    async def _watch(self, record: SandboxRecord, sandbox: Sandbox) -> None:
        await sandbox.wait_ended()
        async with self.transition(record.id):
            if self.live.get(record.id) is sandbox:
                killed = "processes were killed: out of memory"
                reason = killed if sandbox.cgroup.oom_kills() else "init process ended"
                await self._lose(record, reason)

    async def _lose(self, record: SandboxRecord, reason: str) -> None:
        if record.state is State.RESERVED:
            await self.kill(record, reason)
        else:
            await self.container_lost(record, reason)

    async def _expire(self, sandbox_id: str) -> None:
        if sandbox_id not in self.records:
            return
        async with self.transition(sandbox_id):
            record = self.records.get(sandbox_id)
            if record is None or record.state is State.PAUSED:
                return
            if record.state is State.RUNNING and record.ends_at > datetime.now(UTC):
                self.deadlines.arm(sandbox_id, record.ends_at)
            elif record.state is State.RUNNING and record.on_timeout is OnTimeout.PAUSE:
                await self.pause(
                    record, "paused at its timeout", keep_memory=record.pause_keeps_memory
                )
            else:
                await self.kill(record, record.reason or "killed at its timeout")


def _made(record: SandboxRecord) -> str:
    if record.base is None:
        return "created"
    return f"created from the files of {record.base}, without processes"
