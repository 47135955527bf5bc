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
    """Get occupancy and queue lengths: of all tenants with an admin key, otherwise of the caller's tenant."""
    found = await overview.count_occupancy(caller)
    slot_keepers = {backend.name for backend in found.backends if backend.paused_takes_place}
    return Stats(
        backends=[
            _of_backend(
                row, [count for count in found.occupancy if count.backend == row.name], slot_keepers
            )
            for row in found.backends
        ],
        tenants=[
            _of_tenant(
                row, [count for count in found.occupancy if count.tenant_id == row.id], slot_keepers
            )
            for row in found.tenants
        ],
        jobs_dead=found.jobs_dead,
    )


def _of_backend(
    row: Backend, occupancy: Sequence[OccupancyCount], slot_keepers: set[str]
) -> BackendStats:
    return BackendStats(
        name=row.name,
        state=row.state,
        state_reason=row.state_reason,
        drained=row.drained,
        capacity=row.capacity,
        taken=_count_slots(occupancy, slot_keepers),
        busy_until=row.busy_until,
        sandboxes=_states(occupancy),
        queue=_queue(occupancy),
    )


def _of_tenant(
    row: Tenant, occupancy: Sequence[OccupancyCount], slot_keepers: set[str]
) -> TenantStats:
    return TenantStats(
        name=row.name,
        max_running=row.max_running,
        max_queued=row.max_queued,
        taken=_count_slots(occupancy, slot_keepers),
        sandboxes=_states(occupancy),
        queue=_queue(occupancy),
    )


def _count_slots(occupancy: Iterable[OccupancyCount], slot_keepers: set[str]) -> int:
    """Count occupied slots; on `slot_keepers` backends paused sandboxes keep theirs."""
    return sum(
        count.count
        for count in occupancy
        if occupies_slot(count.state, keeps_slots=count.backend in slot_keepers)
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
