from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from sandbox_client.models import BackendRead, BackendUpdate, Page
from sandbox_server.admin.backends import BackendOverview, BackendStatus
from sandbox_server.domain.errors import BackendNotFound
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import depends_on, find_admin, find_reader
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(
    prefix="/v1/backends",
    tags=["operations"],
    route_class=JsonRoute,
    dependencies=[Depends(find_reader)],
)


Name = Annotated[str, may_fail_with(BackendNotFound), Path()]

BackendOverviewDep = Annotated[BackendOverview, depends_on(BackendOverview)]


@router.get("")
async def list_backends(backends: BackendOverviewDep) -> Page[BackendRead]:
    """List the backends, by name. All are returned in one page."""
    return Page(items=[_view(status) for status in await backends.list_all()], next_cursor=None)


@router.get("/{name}")
async def get_backend(name: Name, backends: BackendOverviewDep) -> BackendRead:
    """Get a backend: its state, capacity and limits."""
    return _view(await backends.get(name))


@router.patch("/{name}", dependencies=[Depends(find_admin)])
async def update_backend(
    name: Name, change: BackendUpdate, backends: BackendOverviewDep
) -> BackendRead:
    """Drain a backend, so that it receives no new sandboxes, or end draining."""
    return _view(await backends.set_drained(name, drained=change.drained))


def _view(status: BackendStatus) -> BackendRead:
    row, known = status.row, status.known
    longest_run = known and known.rules.longest_run
    return BackendRead(
        name=row.name,
        is_default=status.is_default,
        configured=known is not None,
        state=row.state,
        state_reason=row.state_reason,
        seen_at=row.seen_at,
        drained=row.drained,
        capacity=row.capacity,
        paused_takes_place=row.paused_takes_place,
        busy_until=row.busy_until,
        overflow_to=known and known.overflow_to,
        max_continuous_run_s=longest_run / timedelta(seconds=1) if longest_run else None,
        strangers=row.strangers,
    )
