from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter

from sandbox_client.models import BackendStats, QueueStats, SandboxState, Stats, TenantStats
from sandbox_server.admin.overview import Overview
from sandbox_server.admin.stats_repository import OccupancyCount
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
            _of_backend(
                one, [count for count in found.occupancy if count.backend == one.name], greedy
            )
            for one in found.backends
        ],
        tenants=[
            _of_tenant(
                one, [count for count in found.occupancy if count.tenant_id == one.id], greedy
            )
            for one in found.tenants
        ],
        jobs_dead=found.jobs_dead,
    )


def _of_backend(
    row: Backend, occupancy: Sequence[OccupancyCount], greedy: set[str]
) -> BackendStats:
    return BackendStats(
        name=row.name,
        state=row.state,
        state_reason=row.state_reason,
        drained=row.drained,
        capacity=row.capacity,
        taken=_taken(occupancy, greedy),
        busy_until=row.busy_until,
        sandboxes=_states(occupancy),
        queue=_queue(occupancy),
    )


def _of_tenant(row: Tenant, occupancy: Sequence[OccupancyCount], greedy: set[str]) -> TenantStats:
    return TenantStats(
        name=row.name,
        max_running=row.max_running,
        max_queued=row.max_queued,
        taken=_taken(occupancy, greedy),
        sandboxes=_states(occupancy),
        queue=_queue(occupancy),
    )


def _taken(occupancy: Iterable[OccupancyCount], greedy: set[str]) -> int:
    """Count the places that are taken; `greedy` backends spend one on a paused sandbox too."""
    return sum(
        count.count
        for count in occupancy
        if occupies_slot(count.state, keeps_slots=count.backend in greedy)
    )


def _states(occupancy: Iterable[OccupancyCount]) -> dict[SandboxState, int]:
    counted: Counter[SandboxState] = Counter()
    for count in occupancy:
        counted[SandboxState(count.state)] += count.count
    return dict(counted)


def _queue(occupancy: Iterable[OccupancyCount]) -> QueueStats:
    waiting = [count for count in occupancy if count.waiting]
    ages = [count.oldest.total_seconds() for count in waiting if count.oldest is not None]
    return QueueStats(
        depth=sum(count.waiting for count in waiting), oldest_age_s=max(ages, default=None)
    )
