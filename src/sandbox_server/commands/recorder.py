import asyncio
import logging
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sandbox_server.commands.command_log import OUTPUTS, Batch, CommandLog
from sandbox_server.commands.rate_limits import Clock, TenantAllowances
from sandbox_server.commands.recording_repository import (
    LogWrite,
    NewGap,
    NewRecord,
    RecordingRepository,
    WriteResult,
)
from sandbox_server.commands.retention import LIMIT_REASON
from sandbox_server.db.models import Command
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction

log = logging.getLogger(__name__)

_STATEMENT_BYTES = 2 * 1024 * 1024  # maximum bytes of one statement
_MAX_STATEMENTS = 3  # concurrent statements, each of another tenant
_RETRY_S = 0.5
_SMALL_BATCH = 32 * 1024
_COALESCE_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the memory and database load of recording in one process."""

    rate: int = 8 * 1024 * 1024
    """Total bytes per second at which floods are written, as far as their allowances permit."""
    trickle: int = 2 * 1024 * 1024
    """Total allowance in bytes per second, divided evenly among tenants."""
    memory: int = 64 * 1024 * 1024
    """Bytes that may be buffered."""
    share: int = 16 * 1024 * 1024
    """Buffered bytes of one tenant."""


class RecordedCommand(Protocol):
    """A command whose log is written."""

    row: Command
    log: CommandLog

    def ack(self, batch: Batch, result: WriteResult) -> None:
        """Update the row after a batch was stored."""

    def forget(self) -> None:
        """Stop recording, because another server records the command or its row is gone."""


class Recorder:
    """Writes the logs of all commands that this process records.

    The log of a command without pending writes is written at once; records that arrive meanwhile are batched. Fast logs take
    turns, so that any number of floods is written at one total rate; excess output is dropped from the middle. An output
    that has used up its allowance is held, and retried twice a second.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        name: str,
        lease: timedelta,
        limits: Limits | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.name = name
        self.lease = lease
        self._sessions = sessions
        self._limits = limits or Limits()
        self._due: defaultdict[str, dict[RecordedCommand, None]] = defaultdict(dict)
        self._taken: dict[RecordedCommand, Batch] = {}
        self._accounted: dict[RecordedCommand, int] = {}
        self._buffered_by_tenant: defaultdict[str, int] = defaultdict(int)
        self._buffered = 0
        self._timers: dict[RecordedCommand, asyncio.TimerHandle] = {}
        self._rate_limited: set[RecordedCommand] = set()  # of these, floods that take turns
        self._allowances: TenantAllowances[RecordedCommand] = TenantAllowances(
            self._limits.trickle, outputs=len(OUTPUTS), clock=clock
        )
        self._recorded: Counter[str] = Counter()
        self._is_flushing = False
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._connections = asyncio.Semaphore(_MAX_STATEMENTS)
        self._stored = asyncio.Event()

    def schedule(self, command: RecordedCommand, *, now: bool = False) -> None:
        """Write what the log contains. A flood waits for its turn unless `now` is set."""
        self._account(command)
        if now:
            self._cancel_timer(command)
        if command not in self._timers:
            self._enqueue(command)

    def schedule_soon(self, command: RecordedCommand) -> None:
        """Write shortly, so that the start of a short command is stored together with its end."""
        self._account(command)
        if command not in self._timers:
            self._delay(command, _COALESCE_S)

    async def wait_for_room(self, command: RecordedCommand) -> None:
        """Wait until more output may be buffered. Held output is dropped instead of blocking other commands."""
        tenant_id = command.row.tenant_id
        while self._is_full(tenant_id) and command in self._accounted:
            self._shed(tenant_id)
            if self._is_full(tenant_id):
                self._stored.clear()
                await self._stored.wait()

    def drop(self, command: RecordedCommand) -> None:
        """Stop writing the log of a command."""
        tenant_id = command.row.tenant_id
        self._due[tenant_id].pop(command, None)
        self._taken.pop(command, None)
        if command in self._accounted:
            self._release(command, self._accounted.pop(command))
            self._forget(command)
        self._allowances.mark_held(tenant_id, command, is_held=False)
        self._cancel_timer(command)

    def _forget(self, command: RecordedCommand) -> None:
        """Forget a command; with a tenant's last command, forget the tenant."""
        tenant_id = command.row.tenant_id
        self._recorded[tenant_id] -= 1
        if not self._recorded[tenant_id]:
            del self._recorded[tenant_id]
            self._allowances.forget(tenant_id)

    async def flush(self) -> None:
        """Write everything, including held output, without taking turns."""
        self._is_flushing = True
        for command in list(self._accounted):
            command.log.release()
            self.schedule(command, now=True)
        while self._writers:
            await asyncio.wait(self._writers.values())
        self._is_flushing = False

    async def close(self) -> None:
        for writer in list(self._writers.values()):
            writer.cancel()
        await asyncio.gather(*self._writers.values(), return_exceptions=True)

    def _enqueue(self, command: RecordedCommand) -> None:
        tenant_id = command.row.tenant_id
        self._due[tenant_id][command] = None
        if tenant_id not in self._writers:
            writer = asyncio.create_task(self._write(tenant_id), name=f"recorder {tenant_id}")
            self._writers[tenant_id] = writer

    async def _write(self, tenant_id: str) -> None:
        due = self._due[tenant_id]
        failing: set[RecordedCommand] = set()
        try:
            while batches := self._take(tenant_id, due, separately=bool(failing)):
                try:
                    async with self._connections:
                        await self._store(tenant_id, batches)
                except OUTAGES as error:
                    log.warning("output not stored yet tenant_id=%s error=%r", tenant_id, error)
                    due.update(dict.fromkeys(batches))
                    # The database may reject one of them: retry them one by one.
                    failing |= batches.keys()
                    await asyncio.sleep(_RETRY_S)
                else:
                    failing -= batches.keys()
        finally:
            del self._writers[tenant_id]
            if not due:
                del self._due[tenant_id]

    def _take(
        self, tenant_id: str, due: dict[RecordedCommand, None], *, separately: bool
    ) -> dict[RecordedCommand, Batch]:
        batches: dict[RecordedCommand, Batch] = {}
        left = _STATEMENT_BYTES
        while due and left > 0 and not (separately and batches):
            command = next(iter(due))
            del due[command]
            batch = self._taken.get(command) or self._take_batch(command, tenant_id, max_bytes=left)
            self._allowances.mark_held(tenant_id, command, is_held=command.log.is_held)
            if batch is not None:
                self._taken[command] = batches[command] = batch
                left -= batch.cost
            else:
                self._retry_later(command)
        return batches

    def _take_batch(
        self, command: RecordedCommand, tenant_id: str, *, max_bytes: int
    ) -> Batch | None:
        rate = self._allowances.rate(tenant_id)
        before = command.log.earned
        batch = command.log.take(max_bytes=max_bytes, rate=rate)
        self._allowances.spend(tenant_id, command.log.earned - before)
        return batch

    def _retry_later(self, command: RecordedCommand) -> None:
        """Retry a command whose output may not be written yet."""
        self._account(command)
        if seconds := command.log.seconds_held():
            self._delay(command, seconds)

    async def _store(self, tenant_id: str, batches: dict[RecordedCommand, Batch]) -> None:
        writes = [_to_write(command, batch) for command, batch in batches.items()]
        async with without_transaction(self._sessions) as session:
            stored = await RecordingRepository(session).store(
                tenant_id, writes, by=self.name, lease=self.lease
            )
        for command, batch in batches.items():
            result = stored.get(command.row.id) or await self._find_stored(command, batch)
            if command not in self._taken:
                continue
            if result is None:
                command.forget()
                self.drop(command)
            else:
                self._ack(command, batch, result)
        self._stored.set()

    async def _find_stored(self, command: RecordedCommand, batch: Batch) -> WriteResult | None:
        """Find out whether a statement without an answer was committed. If not, another server records the command."""
        async with without_transaction(self._sessions) as session:
            return await RecordingRepository(session).find_result(
                command.row.id, by=self.name, after=batch.last_seq
            )

    def _ack(self, command: RecordedCommand, batch: Batch, result: WriteResult) -> None:
        del self._taken[command]
        command.log.ack(batch, result.last_seq)
        command.ack(batch, result)
        if result.ended_at is not None:
            self.drop(command)
            return
        self._account(command)
        if batch.cost > _SMALL_BATCH and not self._is_flushing:
            self._delay(command, batch.cost * (len(self._rate_limited) + 1) / self._limits.rate)
            self._rate_limited.add(command)
        elif command.log.buffered_bytes:
            self._enqueue(command)

    def _delay(self, command: RecordedCommand, seconds: float) -> None:
        self._cancel_timer(command)
        self._timers[command] = asyncio.get_running_loop().call_later(
            seconds, self._resume, command
        )

    def _cancel_timer(self, command: RecordedCommand) -> None:
        self._rate_limited.discard(command)
        if (timer := self._timers.pop(command, None)) is not None:
            timer.cancel()

    def _resume(self, command: RecordedCommand) -> None:
        self._cancel_timer(command)
        if command.log.buffered_bytes:
            self._enqueue(command)

    def _is_full(self, tenant_id: str) -> bool:
        limits = self._limits
        return self._buffered > limits.memory or self._buffered_by_tenant[tenant_id] > limits.share

    def _shed(self, tenant_id: str) -> None:
        """Drop held output evenly, by more than is needed, because scanning all of it takes time."""
        if self._buffered_by_tenant[tenant_id] > self._limits.share:
            self._shed_to(self._limits.share // 2, self._allowances.list_held(tenant_id))
        if self._buffered > self._limits.memory:
            self._shed_to(self._limits.memory // 2, self._allowances.list_all_held())

    def _shed_to(self, max_bytes: int, held: list[RecordedCommand]) -> None:
        for command in held:
            command.log.shed(max_bytes // len(held))
            self._account(command)

    def _account(self, command: RecordedCommand) -> None:
        if command not in self._accounted:
            self._recorded[command.row.tenant_id] += 1
        taken = self._taken.get(command)
        current = command.log.buffered_bytes + (0 if taken is None else taken.cost)
        self._release(command, self._accounted.get(command, 0) - current)
        self._accounted[command] = current

    def _release(self, command: RecordedCommand, cost: int) -> None:
        tenant_id = command.row.tenant_id
        self._buffered -= cost
        self._buffered_by_tenant[tenant_id] -= cost
        if not self._buffered_by_tenant[tenant_id]:
            del self._buffered_by_tenant[tenant_id]
        self._stored.set()


def _to_write(command: RecordedCommand, batch: Batch) -> LogWrite:
    evicted = batch.evicted.items()
    return LogWrite(
        command_id=command.row.id,
        last_seq=batch.last_seq,
        records=[
            NewRecord(each.type, each.offset, bytes(each.content), each.data)
            for each in batch.records
        ],
        deleted=[row.seq for _, each in evicted for row in each.rows[:-1]],
        gaps=[
            NewGap(
                each.gap.seq,
                each.gap.offset,
                {
                    "stream": type_.value,
                    "size": each.gap.end - each.gap.offset,
                    "reason": LIMIT_REASON,
                },
            )
            for type_, each in evicted
        ],
        changes={**batch.changes, **batch.sizes},
    )
