from asyncio import timeout
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_server.admin.stats_repository import OccupancyCount, StatsRepository, Totals
from sandbox_server.db.models import Backend, Tenant
from sandbox_server.db.schema_migrations import find_revision, is_current
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.jobs import DeadJob
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.registry import Backends
from sandbox_server.providers.repository import BackendRepository

_TIMEOUT_S = 5


@dataclass(frozen=True)
class Occupancy:
    """Sandboxes by tenant, backend and state; `jobs_dead` is for admins only."""

    occupancy: Sequence[OccupancyCount]
    backends: Sequence[Backend]
    tenants: Sequence[Tenant]
    jobs_dead: int | None


@dataclass(frozen=True, kw_only=True)
class ReadinessCheck:
    """The reasons why the server is not ready, if any, and the configured backends."""

    reasons: Sequence[str] = ()
    backends: Sequence[Backend] = field(default_factory=list)


class Overview:
    """Statistics and readiness of the installation, and its dead jobs."""

    def __init__(self, sessions: Sessions, backends: Backends) -> None:
        self._sessions = sessions
        self._backends = backends

    async def count_occupancy(self, caller: Caller) -> Occupancy:
        """Count the sandboxes of all tenants for an admin, otherwise of the caller's tenant."""
        is_admin = caller.may(Scope.ADMIN)
        tenant_id = None if is_admin else caller.tenant_id
        async with without_transaction(self._sessions) as session:
            stats = StatsRepository(session)
            return Occupancy(
                occupancy=await stats.list_occupancy(tenant_id=tenant_id),
                backends=await BackendRepository(session).list_all(),
                tenants=await stats.list_tenants(tenant_id=tenant_id),
                jobs_dead=await stats.count_dead_jobs() if is_admin else None,
            )

    async def find_totals(self) -> Totals | None:
        """Count sandboxes, queues and jobs; None during a database outage."""
        with suppress(*OUTAGES):
            async with timeout(_TIMEOUT_S):
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
        """Check the database, its schema and that a backend is configured; a backend may be down."""
        try:
            async with timeout(_TIMEOUT_S), without_transaction(self._sessions) as session:
                if not is_current(await find_revision(session)):
                    return ReadinessCheck(
                        reasons=["The database schema is older than this server."]
                    )
                backends = await BackendRepository(session).list_all()
        except OUTAGES:
            return ReadinessCheck(reasons=["The database is unreachable."])
        configured = [backend for backend in backends if backend.name in self._backends]
        reasons = [] if configured else ["No backend is configured."]
        return ReadinessCheck(reasons=reasons, backends=configured)
