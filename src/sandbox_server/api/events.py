from typing import Annotated

from fastapi import APIRouter, Query

from sandbox_client.models import EventRead, Page, TimelineEntry
from sandbox_server.api.deps import OverviewDep, Reader, SandboxIdPath
from sandbox_server.api.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_number
from sandbox_server.api.views import view_event, view_moment

router = APIRouter(prefix="/v1", tags=["events"])

After = Annotated[
    int, Query(ge=0, le=2**63 - 1, description="Tell what happened after the event of this `seq`.")
]


@router.get("/events")
async def list_events(
    caller: Reader,
    overview: OverviewDep,
    after: After = 0,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EventRead]:
    """Tell what happened to your sandboxes, oldest first."""
    rows = await overview.list_events(caller, after=read_number(cursor) or after, limit=limit + 1)
    items = [view_event(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)


@router.get("/sandboxes/{sandbox_id}/events")
async def list_sandbox_events(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    overview: OverviewDep,
    after: After = 0,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EventRead]:
    """Tell what happened to a sandbox, oldest first."""
    after = read_number(cursor) or after
    rows = await overview.list_events(caller, sandbox_id=sandbox_id, after=after, limit=limit + 1)
    items = [view_event(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)


@router.get("/sandboxes/{sandbox_id}/timeline")
async def get_timeline(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    overview: OverviewDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TimelineEntry]:
    """Tell how a sandbox came to be what it is: each state it was in, what caused it, who, and why."""
    after = read_number(cursor) or 0
    rows = await overview.list_events(caller, sandbox_id=sandbox_id, after=after, limit=limit + 1)
    items = [view_moment(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)
