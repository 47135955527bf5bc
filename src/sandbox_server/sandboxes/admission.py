from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.deadlines import admit
from sandbox_server.domain.errors import QueueFull
from sandbox_server.domain.events import Cause, Entered, entered
from sandbox_server.domain.fair_share import Allocation, TenantShare, allocate
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.domain.wording import spoken
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.metrics.instruments import QUEUE_WAIT_SECONDS
from sandbox_server.sandboxes.repositories.admission import AdmissionRepository, Queue
from sandbox_server.sandboxes.repositories.capacity import CapacityRepository
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of, set_deadlines
from sandbox_server.sandboxes.transitions import cause_of

_TRY_AGAIN_AFTER = timedelta(seconds=10)
_Moved = tuple[Sandbox, Entered]


class Admission:
    """Gives places at backends to those who wait for one: to start, or to resume."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def admit_queued(self, job: LeasedJob) -> datetime | None:
        """Give out what is free; tells until when the backend wants to be left alone.

        All backends that anybody waits for are looked at: what ended at this one may have been what
        a tenant's quota lacked for another.
        """
        async with self._sessions.begin() as session:
            capacities = await CapacityRepository(session).lock_waited_for(job.subject)
            await _give_out(session, capacities)
        return next(
            (capacity.busy_until for capacity in capacities if capacity.backend == job.subject),
            None,
        )

    async def hold(
        self, session: AsyncSession, backends: Collection[str]
    ) -> Sequence[BackendCapacity]:
        """Take the locks of `admit`, as whoever locks a sandbox before it must."""
        return await CapacityRepository(session).lock(backends)

    async def admit(
        self, session: AsyncSession, backends: Collection[str], *, own: str | None = None
    ) -> Sequence[Sandbox]:
        """Give out the backends' free places; gives the rows of who got one.

        Their jobs are due when the caller commits. The caller's `own` sandbox is admitted as part of
        its request: it leases the job itself, and nobody is woken.
        """
        return await _give_out(session, await self.hold(session, backends), own=own)

    async def admit_own(
        self, session: AsyncSession, own: str, capacities: Sequence[BackendCapacity], *, by: str
    ) -> None:
        """Give out the free places of backends that the caller holds, as `admit` does.

        If nobody but the caller's own gets one, it tells that in this process itself, under the name `by`.
        """
        await _give_out(session, capacities, own=own, by=by)


async def require_queue_slot(session: AsyncSession, tenant_id: str) -> None:
    """Refuse what makes more wait than the tenant may have; to be asked after `admit`."""
    repository = AdmissionRepository(session)
    limit = (await repository.lock_tenant(tenant_id)).max_queued
    if await repository.count_waiting(tenant_id, up_to=limit + 1) > limit:
        raise QueueFull(limit=limit, retry_after=_TRY_AGAIN_AFTER)


async def _give_out(
    session: AsyncSession,
    capacities: Sequence[BackendCapacity],
    *,
    own: str | None = None,
    by: str = "",
) -> Sequence[Sandbox]:
    admission_paths = [path for capacity in capacities for path in capacity.admission_paths()]
    if not admission_paths:
        return []
    repository = AdmissionRepository(session)
    tenants = await repository.lock_waiting_tenants()
    if not tenants:
        return []
    # Whoever is further back at a door finds it shut by then.
    most = sum(max(capacity.free, 0) + capacity.paused for capacity in capacities)
    queue = await repository.read_queue(tenants, admission_paths, most=most)
    free = {capacity.backend: capacity.free for capacity in capacities}
    allocations = allocate(queue.waiting, free=free, shares=_with_kept(queue.shares, capacities))
    moved = await _move(session, allocations, own=own, now=queue.now)
    again = {
        allocation.backend for allocation in allocations if allocation.id not in moved
    }  # it had left the queue
    if own is not None and own not in moved and await _lacks_quota(session, own, queue, moved):
        # What its tenant has ended elsewhere may have looked for who waits when this could not be seen.
        again.add(capacities[0].backend)
    await _wake(session, moved.keys() - {own}, again)
    await _tell(session, moved, by=by if moved.keys() <= {own} else "")
    return [row for row, _ in moved.values()]


def _with_kept(
    shares: Mapping[str, TenantShare], capacities: Sequence[BackendCapacity]
) -> Mapping[str, TenantShare]:
    return {
        tenant_id: replace(
            share,
            slots=share.slots + sum(capacity.kept.get(tenant_id, 0) for capacity in capacities),
        )
        for tenant_id, share in shares.items()
    }


async def _move(
    session: AsyncSession, allocations: Sequence[Allocation], *, own: str | None, now: datetime
) -> dict[str, _Moved]:
    backends = {allocation.id: allocation.backend for allocation in allocations}
    moved = {}
    for row in await _lock(session, backends, own=own):
        waited = max(now - row.queued_at, timedelta())
        wish = cause_of(row) if row.id == own else _room_for(backends[row.id], waited)
        QUEUE_WAIT_SECONDS.labels(backends[row.id]).observe(waited.total_seconds())
        _enter(row, backends[row.id], now, own=row.id == own)
        row.state_reason = wish.reason
        event = entered(
            deadlines_of(row),
            sandbox_id=row.id,
            cause=wish.cause,
            actor=wish.actor,
            reason=wish.reason,
        )
        moved[row.id] = row, event
    return moved


async def _lock(
    session: AsyncSession, sandbox_ids: Collection[str], *, own: str | None
) -> Sequence[Sandbox]:
    if own is not None and set(sandbox_ids) == {own}:
        # Its caller holds it, and has it in the session.
        return [await session.get_one(Sandbox, own)]
    return await AdmissionRepository(session).lock_waiting(sandbox_ids) if sandbox_ids else []


def _enter(row: Sandbox, backend: str, now: datetime, *, own: bool) -> None:
    before = deadlines_of(row)
    resumes = row.state is State.PAUSED
    if own and not resumes:
        row.tried_at = now  # who has let it in asks its provider next
    set_deadlines(row, replace(before, state=State.RESUMING) if resumes else admit(before, now))
    row.backend = backend
    row.generation += 1


def _room_for(backend: str, waited: timedelta) -> TransitionCause:
    return TransitionCause(
        cause=Cause.ROOM,
        reason=f"There is a place for it at {backend}, after {spoken(waited)} in the queue.",
    )


async def _lacks_quota(
    session: AsyncSession, sandbox_id: str, queue: Queue, moved: Mapping[str, _Moved]
) -> bool:
    own = await session.get_one(Sandbox, sandbox_id)
    share = queue.shares.get(own.tenant_id)
    admitted = sum(row.tenant_id == own.tenant_id for row, _ in moved.values())
    return share is not None and share.left <= admitted


async def _wake(
    session: AsyncSession, sandbox_ids: Collection[str], backends: Collection[str]
) -> None:
    jobs = JobRepository(session)
    for sandbox_id in sorted(sandbox_ids):
        await jobs.due(SANDBOX, sandbox_id)
    for backend in sorted(backends):
        await jobs.due(ADMISSION, backend)


async def _tell(session: AsyncSession, moved: Mapping[str, _Moved], *, by: str) -> None:
    events = defaultdict(list)
    for row, event in moved.values():
        events[row.tenant_id].append(event)
    for tenant_id in sorted(events):
        await EventRepository(session).append(tenant_id, *events[tenant_id], by=by)
