import asyncio
import logging
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sandbox_server.commands.allowance import TRICKLE, Allowance, Clock
from sandbox_server.commands.command_log import OUTPUTS, Batch, CommandLog
from sandbox_server.commands.recording_repository import (
    Grown,
    Growth,
    NewGap,
    NewRecord,
    RecordingRepository,
)
from sandbox_server.commands.retention import TOO_MUCH
from sandbox_server.db.models import Command
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction

log = logging.getLogger(__name__)

_STATEMENT = 2 * 1024 * 1024  # what is stored by one at the most
_AT_ONCE = 3  # statements, of different tenants
_RETRY_S = 0.5
_TRICKLE_BURST_S = 8  # of a tenant's share
_NEXT_TO_NOTHING = 1.0
_LITTLE = 32 * 1024
_SOON_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What recording may take of a process and its database."""

    rate: int = 8 * 1024 * 1024
    """Bytes per second that all floods together are stored at, as far as their allowances reach."""
    trickle: int = 2 * 1024 * 1024
    """Bytes per second of allowance that all outputs together earn, divided evenly among tenants."""
    memory: int = 64 * 1024 * 1024
    """Bytes that may wait to be stored."""
    share: int = 16 * 1024 * 1024
    """Of these, for one tenant."""


class Recorded(Protocol):
    """A command whose log is written."""

    row: Command
    log: CommandLog

    def settle(self, batch: Batch, grown: Grown) -> None:
        """Hear what is stored from now on."""

    def forget(self) -> None:
        """Hear that another records the command, or that it is no more."""


class Recorder:
    """Writes the logs of all commands that this process records.

    Who has nothing to wait for is written at once; what comes in the meantime goes together. Logs that grow fast take turns,
    so that any number of floods is written at one rate: what is too much by then falls out of the middle. An output that
    has used up its allowance is held back, and looked at twice a second.
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
        self._due: defaultdict[str, dict[Recorded, None]] = defaultdict(dict)
        self._taken: dict[Recorded, Batch] = {}
        self._weights: dict[Recorded, int] = {}
        self._shares: defaultdict[str, int] = defaultdict(int)
        self._weight = 0
        self._resting: dict[Recorded, asyncio.TimerHandle] = {}
        self._paced: set[Recorded] = set()  # of these, the floods that take turns
        self._held: defaultdict[str, set[Recorded]] = defaultdict(set)
        self._clock = clock
        self._pools: dict[str, Allowance] = {}  # what the outputs of a tenant may earn
        self._recorded: Counter[str] = Counter()
        self._strained: set[str] = set()  # tenants whose outputs want more than they may
        self._is_flushing = False
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._connections = asyncio.Semaphore(_AT_ONCE)
        self._stored = asyncio.Event()

    def grow(self, one: Recorded, *, at_once: bool = False) -> None:
        """Have stored what its log has; of one that floods when its turn comes, unless it has ended."""
        self._weigh(one)
        if at_once:
            self._wake(one)
        if one not in self._resting:
            self._have_due(one)

    def grow_soon(self, one: Recorded) -> None:
        """Have stored what its log has together with what follows at once: a short command's start with its end."""
        self._weigh(one)
        if one not in self._resting:
            self._rest(one, _SOON_S)

    async def room(self, one: Recorded) -> None:
        """Wait until more may be received. What is held back makes room instead of letting others wait."""
        tenant_id = one.row.tenant_id
        while self._is_full(tenant_id) and one in self._weights:
            self._shed(tenant_id)
            if self._is_full(tenant_id):
                self._stored.clear()
                await self._stored.wait()

    def drop(self, one: Recorded) -> None:
        """Store no more of it."""
        tenant_id = one.row.tenant_id
        self._due[tenant_id].pop(one, None)
        self._taken.pop(one, None)
        if one in self._weights:
            self._give_back(one, self._weights.pop(one))
            self._forget_tenant_of(one)
        self._note_held(one, is_held=False)
        self._wake(one)

    def _forget_tenant_of(self, one: Recorded) -> None:
        """Note that one is recorded no more; of a tenant whose last it was nothing is kept."""
        tenant_id = one.row.tenant_id
        self._recorded[tenant_id] -= 1
        if not self._recorded[tenant_id]:
            del self._recorded[tenant_id]
            self._pools.pop(tenant_id, None)
            self._strained.discard(tenant_id)

    async def flush(self) -> None:
        """Store all that there is, also what is held back, without taking turns."""
        self._is_flushing = True
        for one in list(self._weights):
            one.log.release()
            self.grow(one, at_once=True)
        while self._lanes:
            await asyncio.wait(self._lanes.values())
        self._is_flushing = False

    async def close(self) -> None:
        for lane in list(self._lanes.values()):
            lane.cancel()
        await asyncio.gather(*self._lanes.values(), return_exceptions=True)

    def _have_due(self, one: Recorded) -> None:
        tenant_id = one.row.tenant_id
        self._due[tenant_id][one] = None
        if tenant_id not in self._lanes:
            lane = asyncio.create_task(self._write(tenant_id), name=f"recorder {tenant_id}")
            self._lanes[tenant_id] = lane

    async def _write(self, tenant_id: str) -> None:
        due = self._due[tenant_id]
        failing: set[Recorded] = set()
        try:
            while batches := self._take(tenant_id, due, alone=bool(failing)):
                try:
                    async with self._connections:
                        await self._store(tenant_id, batches)
                except OUTAGES as error:
                    log.warning("output not stored yet tenant_id=%s error=%r", tenant_id, error)
                    due.update(dict.fromkeys(batches))
                    # Should one of them be what the database will not take, the others get by.
                    failing |= batches.keys()
                    await asyncio.sleep(_RETRY_S)
                else:
                    failing -= batches.keys()
        finally:
            del self._lanes[tenant_id]
            if not due:
                del self._due[tenant_id]

    def _take(
        self, tenant_id: str, due: dict[Recorded, None], *, alone: bool
    ) -> dict[Recorded, Batch]:
        batches: dict[Recorded, Batch] = {}
        left = _STATEMENT
        while due and left > 0 and not (alone and batches):
            one = next(iter(due))
            del due[one]
            batch = self._taken.get(one) or self._take_of(one, tenant_id, most=left)
            self._note_held(one, is_held=one.log.is_held)
            if batch is not None:
                self._taken[one] = batches[one] = batch
                left -= batch.cost
            else:
                self._hold(one)
        return batches

    def _take_of(self, one: Recorded, tenant_id: str, *, most: int) -> Batch | None:
        rate = self._trickle(tenant_id)
        before = one.log.earned
        batch = one.log.take(most=most, rate=rate)
        self._pools[tenant_id].spend(one.log.earned - before)
        return batch

    def _hold(self, one: Recorded) -> None:
        """Look again later at what may not be written yet."""
        self._weigh(one)
        if seconds := one.log.seconds_held():
            self._rest(one, seconds)

    def _note_held(self, one: Recorded, *, is_held: bool) -> None:
        tenant_id = one.row.tenant_id
        if is_held:
            self._held[tenant_id].add(one)
        elif tenant_id in self._held:
            self._held[tenant_id].discard(one)
            if not self._held[tenant_id]:
                del self._held[tenant_id]

    def _trickle(self, tenant_id: str) -> float:
        """Return the rate at which an output of the tenant earns allowance: its part of the tenant's pool."""
        share = self._limits.trickle / len(self._strained | {tenant_id})
        pool = self._pools.get(tenant_id)
        if pool is None:
            burst = self._limits.trickle * _TRICKLE_BURST_S
            pool = self._pools[tenant_id] = Allowance(burst, clock=self._clock)
        pool.refill(share)
        held = self._held.get(tenant_id, ())
        if held or pool.is_in_debt:
            self._strained.add(tenant_id)
        else:
            self._strained.discard(tenant_id)
        if pool.is_in_debt:
            return _NEXT_TO_NOTHING
        return min(TRICKLE, share / (len(held) or 1) / len(OUTPUTS))

    async def _store(self, tenant_id: str, batches: dict[Recorded, Batch]) -> None:
        growths = [_growth(one, batch) for one, batch in batches.items()]
        async with without_transaction(self._sessions) as session:
            stored = await RecordingRepository(session).store(
                tenant_id, growths, by=self.name, lease=self.lease
            )
        for one, batch in batches.items():
            grown = stored.get(one.row.id) or await self._find_stored(one, batch)
            if one not in self._taken:
                continue
            if grown is None:
                one.forget()
                self.drop(one)
            else:
                self._settle(one, batch, grown)
        self._stored.set()

    async def _find_stored(self, one: Recorded, batch: Batch) -> Grown | None:
        """Find out whether a statement whose answer was lost has stored it; else it is another's by now."""
        async with without_transaction(self._sessions) as session:
            return await RecordingRepository(session).find_grown(
                one.row.id, by=self.name, after=batch.last_seq
            )

    def _settle(self, one: Recorded, batch: Batch, grown: Grown) -> None:
        del self._taken[one]
        one.log.settle(batch, grown.last_seq)
        one.settle(batch, grown)
        if grown.ended_at is not None:
            self.drop(one)
            return
        self._weigh(one)
        if batch.cost > _LITTLE and not self._is_flushing:
            self._rest(one, batch.cost * (len(self._paced) + 1) / self._limits.rate)
            self._paced.add(one)
        elif one.log.weight:
            self._have_due(one)

    def _rest(self, one: Recorded, seconds: float) -> None:
        self._wake(one)
        self._resting[one] = asyncio.get_running_loop().call_later(seconds, self._go_on, one)

    def _wake(self, one: Recorded) -> None:
        self._paced.discard(one)
        if (rest := self._resting.pop(one, None)) is not None:
            rest.cancel()

    def _go_on(self, one: Recorded) -> None:
        self._wake(one)
        if one.log.weight:
            self._have_due(one)

    def _is_full(self, tenant_id: str) -> bool:
        limits = self._limits
        return self._weight > limits.memory or self._shares[tenant_id] > limits.share

    def _shed(self, tenant_id: str) -> None:
        """Drop output that is held back, evenly and by more than is needed: to look through all of it takes time."""
        if self._shares[tenant_id] > self._limits.share:
            self._shed_to(self._limits.share // 2, list(self._held.get(tenant_id, ())))
        if self._weight > self._limits.memory:
            every = [one for held in self._held.values() for one in held]
            self._shed_to(self._limits.memory // 2, every)

    def _shed_to(self, most: int, held: list[Recorded]) -> None:
        for one in held:
            one.log.shed(most // len(held))
            self._weigh(one)

    def _weigh(self, one: Recorded) -> None:
        if one not in self._weights:
            self._recorded[one.row.tenant_id] += 1
        taken = self._taken.get(one)
        now = one.log.weight + (0 if taken is None else taken.cost)
        self._give_back(one, self._weights.get(one, 0) - now)
        self._weights[one] = now

    def _give_back(self, one: Recorded, cost: int) -> None:
        tenant_id = one.row.tenant_id
        self._weight -= cost
        self._shares[tenant_id] -= cost
        if not self._shares[tenant_id]:
            del self._shares[tenant_id]
        self._stored.set()


def _growth(one: Recorded, batch: Batch) -> Growth:
    fallen = batch.fallen.items()
    return Growth(
        command_id=one.row.id,
        last_seq=batch.last_seq,
        records=[
            NewRecord(each.type, each.offset, bytes(each.content), each.data)
            for each in batch.records
        ],
        gone=[row.seq for _, each in fallen for row in each.rows[:-1]],
        gaps=[
            NewGap(
                each.gap.seq,
                each.gap.offset,
                {
                    "stream": type_.value,
                    "size": each.gap.end - each.gap.offset,
                    "reason": TOO_MUCH,
                },
            )
            for type_, each in fallen
        ],
        changes={**batch.changes, **batch.sizes},
    )
