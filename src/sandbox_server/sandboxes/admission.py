"""How sandboxes get a slot at a backend.

    create, session   at once, if a slot and quota are free and nothing is queued; otherwise queued
    resume            at once, if it is first in the order of the queue; otherwise it waits paused
    fork              queued until its snapshot is ready
    slot released     the backend's job gives free slots to queued sandboxes

Every path locks backends before tenants, and tenants before sandboxes.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.deadlines import admit
from sandbox_server.domain.errors import QueueFull
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.metrics.instruments import QUEUE_WAIT_SECONDS
from sandbox_server.sandboxes.queue.allocation import allocate_slots
from sandbox_server.sandboxes.repositories.admission import AdmissionRepository
from sandbox_server.sandboxes.repositories.capacity import CapacityRepository
from sandbox_server.sandboxes.repositories.direct_admission import DirectAdmissionRepository
from sandbox_server.sandboxes.repositories.sandboxes import (
    SandboxRepository,
    cause_of,
    deadlines_of,
    set_deadlines,
    state_event,
)

_RETRY_AFTER = timedelta(seconds=10)


class Admission:
    """Admits sandboxes at once or queues them, and gives released slots to queued ones."""

    def __init__(self, sessions: Sessions, *, by: str = "") -> None:
        self._sessions = sessions
        self._by = by
        """The name under which this process ignores notifications of its own commits."""

    async def admit_queued(self, job: LeasedJob) -> datetime | None:
        """Give out the free slots of a backend; returns until when the backend is busy.

        Every backend with queued sandboxes is considered: a sandbox that ended at this one may have
        freed the quota that its tenant lacked for another.
        """
        async with self._sessions.begin() as session:
            capacities = await CapacityRepository(session).lock_waited_for(job.subject)
            await allocate_slots(session, capacities)
        return next(
            (capacity.busy_until for capacity in capacities if capacity.backend == job.subject),
            None,
        )

    async def add(
        self, session: AsyncSession, row: Sandbox, now: datetime, *, quota_free: bool
    ) -> None:
        """Insert a new sandbox, which starts at once or is queued.

        `quota_free`: its tenant may run more and nothing is queued; checked again under locks.
        """
        if quota_free and await self._add_started(session, row, now):
            return
        await SandboxRepository(session).add(row)
        if not quota_free:
            await self.admit(session, row.candidates, own=row.id)
        if row.state is State.QUEUED:
            await _enqueue(session, row)

    async def add_without_candidates(self, session: AsyncSession, row: Sandbox) -> None:
        """Insert a sandbox that stays queued until its template is ready."""
        await SandboxRepository(session).add(row)
        await _enqueue(session, row)

    async def lock(
        self, session: AsyncSession, backends: Collection[str]
    ) -> Sequence[BackendCapacity]:
        """Lock the backends for `admit_paused`, before the sandbox is locked."""
        return await CapacityRepository(session).lock(backends)

    async def admit_paused(
        self, session: AsyncSession, row: Sandbox, locked: Sequence[BackendCapacity]
    ) -> bool:
        """Resume a paused sandbox with the target `running`; returns whether it got a slot at once."""
        if row.backend not in {capacity.backend for capacity in locked}:  # it has been paused since
            await JobRepository(session).due(ADMISSION, str(row.backend))
            return False
        await allocate_slots(session, locked, own=row.id, by=self._by)
        if row.state is State.RESUMING:
            return True
        await require_queue_slot(session, row.tenant_id)
        return False

    async def admit(
        self, session: AsyncSession, backends: Collection[str], *, own: str | None = None
    ) -> Sequence[Sandbox]:
        """Give out the free slots of backends; see `allocate_slots`."""
        locked = await self.lock(session, backends)
        return await allocate_slots(session, locked, own=own)

    async def _add_started(self, session: AsyncSession, row: Sandbox, now: datetime) -> bool:
        """Insert the row with a slot; False leaves the row unchanged, for the queue."""
        backend = await _find_free(session, row.candidates)
        if backend is None:
            return False
        before = deadlines_of(row)
        _enter(row, backend, now)
        if not await DirectAdmissionRepository(session).add(row):
            _leave(row)
            set_deadlines(row, before)
            # The row's tenant is locked, so other waiting tenants cannot be: the job considers them all.
            await JobRepository(session).due(ADMISSION, backend)
            return False
        QUEUE_WAIT_SECONDS.labels(backend).observe(0)
        started = state_event(row, cause_of(row))
        await EventRepository(session).append(row.tenant_id, started, by=self._by)
        return True


async def require_queue_slot(session: AsyncSession, tenant_id: str) -> None:
    """Refuse to queue more sandboxes than the tenant may have; the last one is in the queue already."""
    repository = AdmissionRepository(session)
    limit = (await repository.lock_tenant(tenant_id)).max_queued
    if await repository.count_waiting(tenant_id, up_to=limit + 1) > limit:
        raise QueueFull(limit=limit, retry_after=_RETRY_AFTER)


async def _enqueue(session: AsyncSession, row: Sandbox) -> None:
    await require_queue_slot(session, row.tenant_id)
    if row.queue_expires_at is not None:
        await JobRepository(session).due(SANDBOX, row.id, row.queue_expires_at)
    await EventRepository(session).append(row.tenant_id, state_event(row, cause_of(row)))


async def _find_free(session: AsyncSession, candidates: Sequence[str]) -> str | None:
    """Lock the candidates and find the best one with a free slot."""
    locked = {
        capacity.backend: capacity
        for capacity in await CapacityRepository(session).lock(candidates)
    }
    known = (locked[name] for name in candidates if name in locked)
    return next(
        (
            capacity.backend
            for capacity in known
            if capacity.free > 0 and capacity.admits(State.QUEUED)
        ),
        None,
    )


def _enter(row: Sandbox, backend: str, now: datetime) -> None:
    set_deadlines(row, admit(deadlines_of(row), now))
    row.backend, row.generation = backend, 1
    row.tried_at = now  # the caller requests the sandbox from the provider next
    row.state_reason = cause_of(row).reason


def _leave(row: Sandbox) -> None:
    row.backend, row.generation = None, 0
    row.tried_at = row.state_reason = None
