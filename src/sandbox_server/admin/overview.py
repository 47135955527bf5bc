from asyncio import timeout
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_server.admin.stats_repository import OccupancyCount, StatsRepository, Totals
from sandbox_server.db.migrating import find_revision, is_current
from sandbox_server.db.models import Backend, Tenant
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.jobs import DeadJob
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.registry import Backends
from sandbox_server.providers.repository import BackendRepository

_PATIENCE_S = 5


@dataclass(frozen=True)
class Occupancy:
    """Who is where: of all tenants, or of one."""

    occupancy: Sequence[OccupancyCount]
    backends: Sequence[Backend]
    tenants: Sequence[Tenant]
    jobs_dead: int | None


@dataclass(frozen=True, kw_only=True)
class ReadinessCheck:
    """What keeps the server from serving, if anything does."""

    reasons: Sequence[str] = ()
    backends: Sequence[Backend] = field(default_factory=list)


class Overview:
    """Answers what is asked about the whole, and changes nothing but dead jobs."""

    def __init__(self, sessions: Sessions, backends: Backends) -> None:
        self._sessions = sessions
        self._backends = backends

    async def count_occupancy(self, caller: Caller) -> Occupancy:
        """Count all tenants' sandboxes for an admin, for others their own."""
        everybody = caller.may(Scope.ADMIN)
        tenant_id = None if everybody else caller.tenant_id
        async with without_transaction(self._sessions) as session:
            stats = StatsRepository(session)
            return Occupancy(
                occupancy=await stats.list_occupancy(tenant_id=tenant_id),
                backends=await BackendRepository(session).list_all(),
                tenants=await stats.list_tenants(tenant_id=tenant_id),
                jobs_dead=await stats.count_dead_jobs() if everybody else None,
            )

    async def find_totals(self) -> Totals | None:
        """Count everything, if the database answers; what has ended costs nothing."""
        with suppress(*OUTAGES):
            async with timeout(_PATIENCE_S):
                return await self._count_totals()
        return None

    async def _count_totals(self) -> Totals:
        async with without_transaction(self._sessions) as session:
            stats = StatsRepository(session)
            return Totals(
                counts=await stats.count_states(),
                queues=await stats.list_queues(),
                due=await stats.list_due_jobs(),
                jobs_dead=await stats.count_dead_jobs(),
                backends=await BackendRepository(session).list_all(),
            )

    async def list_dead_jobs(self, *, after: int, limit: int) -> Sequence[DeadJob]:
        async with without_transaction(self._sessions) as session:
            return await JobRepository(session).list_dead(after=after, limit=limit)

    async def retry_job(self, job_id: int) -> None:
        async with self._sessions.begin() as session:
            await JobRepository(session).retry(job_id)

    async def check_readiness(self) -> ReadinessCheck:
        """Tell whether requests can be served; a backend that is down does not keep them from it."""
        try:
            async with timeout(_PATIENCE_S), without_transaction(self._sessions) as session:
                if not is_current(await find_revision(session)):
                    return ReadinessCheck(
                        reasons=["The database's schema is older than this server."]
                    )
                backends = await BackendRepository(session).list_all()
        except OUTAGES:
            return ReadinessCheck(reasons=["The database does not answer."])
        ours = [backend for backend in backends if backend.name in self._backends]
        return ReadinessCheck(reasons=[] if ours else ["No backend is configured."], backends=ours)
