from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Job, Sandbox, Tenant
from sandbox_server.domain.state import State
from sandbox_server.jobs.statements import NOW, ROW, UNLEASED
from sandbox_server.sandboxes.repositories.slots import is_queued

# A sandbox without a backend is counted at its first candidate.
_backend = func.coalesce(Sandbox.backend, Sandbox.candidates[1])


@dataclass(frozen=True)
class OccupancyCount:
    """Sandboxes of one tenant at one backend in one state, and how many of them wait for a slot."""

    tenant_id: str
    backend: str | None
    state: State
    count: int
    waiting: int
    oldest: timedelta | None


@dataclass(frozen=True)
class StateCount:
    """Sandboxes at one backend in one state."""

    backend: str | None
    state: State
    count: int


@dataclass(frozen=True)
class QueueLength:
    """Sandboxes waiting for a slot at one backend."""

    backend: str | None
    depth: int
    oldest: timedelta


@dataclass(frozen=True)
class DueJobs:
    """Due jobs of one kind that no worker has claimed."""

    kind: str
    count: int
    oldest: timedelta


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts over all tenants."""

    counts: Sequence[StateCount]
    queues: Sequence[QueueLength]
    due: Sequence[DueJobs]
    jobs_dead: int
    backends: Sequence[Backend]


class StatsRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_occupancy(self, *, tenant_id: str | None = None) -> Sequence[OccupancyCount]:
        """Count sandboxes that have not ended, of one tenant or of all."""
        counted = select(
            Sandbox.tenant_id,
            _backend,
            Sandbox.state,
            func.count(),
            func.count().filter(is_queued),
            func.clock_timestamp() - func.min(Sandbox.queued_at).filter(is_queued),
        ).where(Sandbox.ended_at.is_(None))
        if tenant_id is not None:
            counted = counted.where(Sandbox.tenant_id == tenant_id)
        grouped = counted.group_by(Sandbox.tenant_id, _backend, Sandbox.state)
        return [OccupancyCount(*row) for row in await self._session.execute(grouped)]

    async def count_states(self) -> Sequence[StateCount]:
        """Count sandboxes that have not ended, by an index-only scan except for those without a backend."""
        living = select(Sandbox).where(Sandbox.ended_at.is_(None))
        at_backends = living.where(Sandbox.backend.is_not(None))
        placed = at_backends.with_only_columns(Sandbox.backend, Sandbox.state, func.count())
        grouped = placed.group_by(Sandbox.backend, Sandbox.state)
        unplaced = living.where(Sandbox.backend.is_(None)).with_only_columns(
            Sandbox.candidates[1].label("first"), Sandbox.state, func.count()
        )
        every = [grouped, unplaced.group_by("first", Sandbox.state)]
        return [StateCount(*row) for query in every for row in await self._session.execute(query)]

    async def list_queues(self) -> Sequence[QueueLength]:
        """Count queued sandboxes by backend, with the index of the queue."""
        queues = select(
            _backend.label("queue"),
            func.count(),
            func.clock_timestamp() - func.min(Sandbox.queued_at),
        ).where(is_queued)
        return [QueueLength(*row) for row in await self._session.execute(queues.group_by("queue"))]

    async def list_due_jobs(self) -> Sequence[DueJobs]:
        due = select(ROW.kind, func.count(), NOW - func.min(ROW.run_at))
        overdue = due.where(ROW.run_at <= NOW, UNLEASED).group_by(ROW.kind)
        return [DueJobs(*row) for row in await self._session.execute(overdue)]

    async def list_tenants(self, *, tenant_id: str | None = None) -> Sequence[Tenant]:
        query = select(Tenant).order_by(Tenant.name)
        if tenant_id is not None:
            query = query.where(Tenant.id == tenant_id)
        return (await self._session.scalars(query)).all()

    async def count_dead_jobs(self) -> int:
        counted = select(func.count()).select_from(Job).where(Job.dead_at.is_not(None))
        return (await self._session.execute(counted)).scalar_one()
