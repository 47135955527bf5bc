from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from sandbox_client.models import EventRead, Page, TimelineEntry
from sandbox_server.domain.events import Cause
from sandbox_server.events.event_source import EventSource, tell_event, tell_moment
from sandbox_server.events.service import Timelines
from sandbox_server.http.deps import Reader, SandboxIdPath, depends_on
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_number
from sandbox_server.http.sse import EVENT_STREAM, EVENTS_OVER, ListenerDep
from sandbox_server.log.event_repository import EventFilter

router = APIRouter(prefix="/v1", tags=["events"])

Types = Annotated[
    list[Annotated[str, Query(pattern=r"^[a-z_]{1,50}\.[a-z_]{0,50}$")]] | None,
    Query(
        alias="type", description="Those of any of these types; `sandbox.` is all that begin so."
    ),
]
Causes = Annotated[
    list[Cause] | None, Query(alias="cause", description="Those of any of these causes.")
]


async def find_event_filter(types: Types = None, causes: Causes = None) -> EventFilter:
    return EventFilter(types=frozenset(types or ()), causes=frozenset(causes or ()))


TimelinesDep = Annotated[Timelines, depends_on(Timelines)]
EventFilterDep = Annotated[EventFilter, Depends(find_event_filter)]


@router.get("/events", response_model=Page[EventRead], responses={200: EVENT_STREAM})
async def list_events(
    caller: Reader,
    timelines: TimelinesDep,
    listener: ListenerDep,
    wanted: EventFilterDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EventRead] | Response:
    """Tell what happened to your sandboxes, oldest first; with `Accept: text/event-stream` what happens from now on too."""
    if listener.asks_for_events:
        return await listener.stream(EventSource(tenant_id=caller.tenant_id, wanted=wanted))
    begin = read_number(cursor) or listener.after or 0
    rows = await timelines.list_events(caller, wanted=wanted, after=begin, limit=limit + 1)
    items = [tell_event(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)


@router.get(
    "/sandboxes/{sandbox_id}/events",
    response_model=Page[EventRead],
    responses={200: EVENT_STREAM, 204: EVENTS_OVER},
)
async def list_sandbox_events(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    timelines: TimelinesDep,
    listener: ListenerDep,
    wanted: EventFilterDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EventRead] | Response:
    """Tell what happened to a sandbox, oldest first; with `Accept: text/event-stream` until it has ended."""
    if listener.asks_for_events:
        await timelines.require_sandboxes(caller, sandbox_id)
        source = EventSource(tenant_id=caller.tenant_id, sandbox_id=sandbox_id, wanted=wanted)
        return await listener.stream(source)
    begin = read_number(cursor) or listener.after or 0
    rows = await timelines.list_events(
        caller, sandbox_id=sandbox_id, wanted=wanted, after=begin, limit=limit + 1
    )
    items = [tell_event(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)


@router.get("/sandboxes/{sandbox_id}/timeline")
async def get_timeline(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    timelines: TimelinesDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TimelineEntry]:
    """Tell how a sandbox came to be what it is: each state it was in, what caused it, who, and why."""
    after = read_number(cursor) or 0
    rows = await timelines.list_events(caller, sandbox_id=sandbox_id, after=after, limit=limit + 1)
    items = [tell_moment(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)
