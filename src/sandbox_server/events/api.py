from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from sandbox_client.models import EventRead, Page, TimelineEntry
from sandbox_server.domain.events import Cause
from sandbox_server.events.event_source import EventSource, view_event, view_timeline_entry
from sandbox_server.events.service import Timelines
from sandbox_server.http.deps import Reader, SandboxIdPath, depends_on
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_number
from sandbox_server.http.sse import EVENT_STREAM, EVENTS_OVER, ListenerDep
from sandbox_server.log.event_repository import EventFilter

router = APIRouter(prefix="/v1", tags=["events"])

Types = Annotated[
    list[Annotated[str, Query(pattern=r"^[a-z_]{1,50}\.[a-z_]{0,50}$")]] | None,
    Query(
        alias="type",
        description="Only events of any of these types; `sandbox.` matches all types with this prefix.",
    ),
]
Causes = Annotated[
    list[Cause] | None, Query(alias="cause", description="Only events with any of these causes.")
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
    event_filter: EventFilterDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EventRead] | Response:
    """List events of all your sandboxes, oldest first. With `Accept: text/event-stream`, also stream new events."""
    if listener.asks_for_events:
        return await listener.stream(
            EventSource(tenant_id=caller.tenant_id, event_filter=event_filter)
        )
    begin = read_number(cursor) or listener.after or 0
    rows = await timelines.list_events(
        caller, event_filter=event_filter, after=begin, limit=limit + 1
    )
    items = [view_event(row) for row in rows]
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
    event_filter: EventFilterDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EventRead] | Response:
    """List events of a sandbox, oldest first. With `Accept: text/event-stream`, also stream new events until it is deleted or has failed."""
    if listener.asks_for_events:
        await timelines.require_sandboxes(caller, sandbox_id)
        source = EventSource(
            tenant_id=caller.tenant_id, sandbox_id=sandbox_id, event_filter=event_filter
        )
        return await listener.stream(source)
    begin = read_number(cursor) or listener.after or 0
    rows = await timelines.list_events(
        caller, sandbox_id=sandbox_id, event_filter=event_filter, after=begin, limit=limit + 1
    )
    items = [view_event(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)


@router.get("/sandboxes/{sandbox_id}/timeline")
async def get_timeline(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    timelines: TimelinesDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TimelineEntry]:
    """List the history of a sandbox, oldest first: its states, and what caused each change, by whom and why."""
    after = read_number(cursor) or 0
    rows = await timelines.list_events(caller, sandbox_id=sandbox_id, after=after, limit=limit + 1)
    items = [view_timeline_entry(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.seq)
