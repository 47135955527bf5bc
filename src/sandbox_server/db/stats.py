from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Job, Sandbox, Tenant
from sandbox_server.domain.state import State, Target

_waits = and_(Sandbox.target == Target.RUNNING, Sandbox.state.in_([State.QUEUED, State.PAUSED]))
# What has no place yet is counted where it would go first.
_backend = func.coalesce(Sandbox.backend, Sandbox.candidates[1])


@dataclass(frozen=True)
class Crowd:
    """Sandboxes of one tenant at one backend in one state, and how many of them wait for a place."""

    tenant_id: str
    backend: str | None
    state: State
    count: int
    waiting: int
    oldest: timedelta | None


class StatsRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_crowds(self, *, tenant_id: str | None = None) -> Sequence[Crowd]:
        """Count what has not ended, of one tenant or of all."""
        counted = select(
            Sandbox.tenant_id,
            _backend,
            Sandbox.state,
            func.count(),
            func.count().filter(_waits),
            func.clock_timestamp() - func.min(Sandbox.queued_at).filter(_waits),
        ).where(Sandbox.ended_at.is_(None))
        if tenant_id is not None:
            counted = counted.where(Sandbox.tenant_id == tenant_id)
        grouped = counted.group_by(Sandbox.tenant_id, _backend, Sandbox.state)
        return [Crowd(*row) for row in await self._session.execute(grouped)]

    async def list_tenants(self, *, tenant_id: str | None = None) -> Sequence[Tenant]:
        query = select(Tenant).order_by(Tenant.name)
        if tenant_id is not None:
            query = query.where(Tenant.id == tenant_id)
        return (await self._session.scalars(query)).all()

    async def count_dead_jobs(self) -> int:
        counted = select(func.count()).select_from(Job).where(Job.dead_at.is_not(None))
        return (await self._session.execute(counted)).scalar_one()
