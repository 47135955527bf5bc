from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter

from sandbox_client.models import BackendStats, QueueStats, SandboxState, Stats, TenantStats
from sandbox_server.admin.overview import Overview
from sandbox_server.admin.stats_repository import Crowd
from sandbox_server.db.models import Backend, Tenant
from sandbox_server.domain.capacity import occupies_slot
from sandbox_server.http.deps import Reader, depends_on

router = APIRouter(prefix="/v1/stats", tags=["operations"])

OverviewDep = Annotated[Overview, depends_on(Overview)]


@router.get("")
async def get_stats(caller: Reader, overview: OverviewDep) -> Stats:
    """Tell how full it is and who waits: of everybody to an admin's key, to others of their own tenant."""
    found = await overview.count_occupancy(caller)
    greedy = {backend.name for backend in found.backends if backend.paused_takes_place}
    return Stats(
        backends=[
            _of_backend(one, [crowd for crowd in found.crowds if crowd.backend == one.name], greedy)
            for one in found.backends
        ],
        tenants=[
            _of_tenant(one, [crowd for crowd in found.crowds if crowd.tenant_id == one.id], greedy)
            for one in found.tenants
        ],
        jobs_dead=found.jobs_dead,
    )


def _of_backend(row: Backend, crowds: Sequence[Crowd], greedy: set[str]) -> BackendStats:
    return BackendStats(
        name=row.name,
        state=row.state,
        state_reason=row.state_reason,
        drained=row.drained,
        capacity=row.capacity,
        taken=_taken(crowds, greedy),
        busy_until=row.busy_until,
        sandboxes=_states(crowds),
        queue=_queue(crowds),
    )


def _of_tenant(row: Tenant, crowds: Sequence[Crowd], greedy: set[str]) -> TenantStats:
    return TenantStats(
        name=row.name,
        max_running=row.max_running,
        max_queued=row.max_queued,
        taken=_taken(crowds, greedy),
        sandboxes=_states(crowds),
        queue=_queue(crowds),
    )


def _taken(crowds: Iterable[Crowd], greedy: set[str]) -> int:
    """Count the places that are taken; `greedy` backends spend one on a paused sandbox too."""
    return sum(
        crowd.count
        for crowd in crowds
        if occupies_slot(crowd.state, keeps_slots=crowd.backend in greedy)
    )


def _states(crowds: Iterable[Crowd]) -> dict[SandboxState, int]:
    counted: Counter[SandboxState] = Counter()
    for crowd in crowds:
        counted[SandboxState(crowd.state)] += crowd.count
    return dict(counted)


def _queue(crowds: Iterable[Crowd]) -> QueueStats:
    waiting = [crowd for crowd in crowds if crowd.waiting]
    ages = [crowd.oldest.total_seconds() for crowd in waiting if crowd.oldest is not None]
    return QueueStats(
        depth=sum(crowd.waiting for crowd in waiting), oldest_age_s=max(ages, default=None)
    )
