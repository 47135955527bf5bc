from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.deadlines import admit
from sandbox_server.domain.events import Cause, Entered
from sandbox_server.domain.explanations import format_duration
from sandbox_server.domain.fair_share import Allocation, TenantShare, allocate
from sandbox_server.domain.state import State
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.metrics.instruments import QUEUE_WAIT_SECONDS
from sandbox_server.sandboxes.repositories.admission import AdmissionRepository, Queue
from sandbox_server.sandboxes.repositories.sandboxes import (
    cause_of,
    deadlines_of,
    set_deadlines,
    state_event,
)

_Admitted = tuple[Sandbox, Entered]


async def allocate_slots(
    session: AsyncSession,
    capacities: Sequence[BackendCapacity],
    *,
    own: str | None = None,
    by: str = "",
) -> Sequence[Sandbox]:
    """Give the free slots of locked backends to queued sandboxes; returns the admitted rows.

    Their jobs are due when the caller commits, except that of `own`, the sandbox of the current
    request: the caller leases it. If only `own` is admitted, the process named `by` already knows.
    """
    paths = [path for capacity in capacities for path in capacity.admission_paths()]
    if not paths:
        return []
    repository = AdmissionRepository(session)
    tenants = await repository.lock_waiting_tenants()
    if not tenants:
        return []
    # Sandboxes further back in the queue cannot get a slot.
    most = sum(max(capacity.free, 0) + capacity.paused for capacity in capacities)
    queue = await repository.read_queue(tenants, paths, most=most)
    free = {capacity.backend: capacity.free for capacity in capacities}
    shares = _with_kept(queue.shares, capacities)
    allocations = allocate(queue.waiting, free=free, shares=shares)
    admitted = await _admit(session, allocations, own=own, now=queue.now)
    # A sandbox that left the queue meanwhile has not used its slot.
    again = {allocation.backend for allocation in allocations if allocation.id not in admitted}
    if own is not None and await _lacks_quota(session, own, queue, admitted):
        # A concurrent end of the tenant's sandbox may have searched the queue before `own` was visible.
        again.add(capacities[0].backend)
    await _wake(session, admitted.keys() - {own}, again)
    await _append_events(session, admitted, by=by if admitted.keys() <= {own} else "")
    return [row for row, _ in admitted.values()]


def _with_kept(
    shares: Mapping[str, TenantShare], capacities: Sequence[BackendCapacity]
) -> Mapping[str, TenantShare]:
    """Add the slots that paused sandboxes keep."""
    return {
        tenant_id: replace(
            share,
            slots=share.slots + sum(capacity.kept.get(tenant_id, 0) for capacity in capacities),
        )
        for tenant_id, share in shares.items()
    }


async def _admit(
    session: AsyncSession, allocations: Sequence[Allocation], *, own: str | None, now: datetime
) -> dict[str, _Admitted]:
    backends = {allocation.id: allocation.backend for allocation in allocations}
    admitted = {}
    for row in await _lock(session, backends, own=own):
        backend, waited = backends[row.id], max(now - row.queued_at, timedelta())
        cause = cause_of(row) if row.id == own else _slot_free(backend, waited)
        QUEUE_WAIT_SECONDS.labels(backend).observe(waited.total_seconds())
        _enter(row, backend, now, own=row.id == own)
        row.state_reason = cause.reason
        admitted[row.id] = row, state_event(row, cause)
    return admitted


async def _lock(
    session: AsyncSession, sandbox_ids: Collection[str], *, own: str | None
) -> Sequence[Sandbox]:
    if own is not None and set(sandbox_ids) == {own}:
        # The caller has locked the row, and it is in the session.
        return [await session.get_one(Sandbox, own)]
    return await AdmissionRepository(session).lock_waiting(sandbox_ids) if sandbox_ids else []


def _enter(row: Sandbox, backend: str, now: datetime, *, own: bool) -> None:
    before = deadlines_of(row)
    resumes = row.state is State.PAUSED
    if own and not resumes:
        row.tried_at = now  # the caller requests the sandbox from the provider next
    set_deadlines(row, replace(before, state=State.RESUMING) if resumes else admit(before, now))
    row.backend = backend
    row.generation += 1


def _slot_free(backend: str, waited: timedelta) -> TransitionCause:
    return TransitionCause(
        cause=Cause.ROOM,
        reason=f"Admitted to a free slot at {backend} after {format_duration(waited)} in the queue.",
    )


async def _lacks_quota(
    session: AsyncSession, sandbox_id: str, queue: Queue, admitted: Mapping[str, _Admitted]
) -> bool:
    if sandbox_id in admitted:
        return False
    own = await session.get_one(Sandbox, sandbox_id)
    share = queue.shares.get(own.tenant_id)
    of_tenant = sum(row.tenant_id == own.tenant_id for row, _ in admitted.values())
    return share is not None and share.left <= of_tenant


async def _wake(
    session: AsyncSession, sandbox_ids: Collection[str], backends: Collection[str]
) -> None:
    jobs = JobRepository(session)
    for sandbox_id in sorted(sandbox_ids):
        await jobs.due(SANDBOX, sandbox_id)
    for backend in sorted(backends):
        await jobs.due(ADMISSION, backend)


async def _append_events(
    session: AsyncSession, admitted: Mapping[str, _Admitted], *, by: str
) -> None:
    events = defaultdict(list)
    for row, event in admitted.values():
        events[row.tenant_id].append(event)
    for tenant_id in sorted(events):
        await EventRepository(session).append(tenant_id, *events[tenant_id], by=by)
