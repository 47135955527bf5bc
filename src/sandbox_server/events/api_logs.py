from typing import Annotated

from fastapi import APIRouter, Query, Response

from sandbox_client.models import LogEvent, LogGap, LogRecord, Page
from sandbox_server.events.api import TimelinesDep
from sandbox_server.events.log_source import USUAL, LogKind, LogSource
from sandbox_server.events.service import Timelines
from sandbox_server.http.deps import Reader, SandboxIdPath, SandboxIdsQuery
from sandbox_server.http.pagination import (
    DEFAULT_LIMIT,
    Cursor,
    Limit,
    read_number,
    respond_with_page,
)
from sandbox_server.http.sse import EVENT_STREAM, EVENTS_OVER, Listener, ListenerDep

router = APIRouter(prefix="/v1", tags=["events"])

Sources = Annotated[
    list[LogKind] | None,
    Query(alias="source", description="Only these sources. Default: all except terminals."),
]
LogPage = Page[LogEvent | LogRecord | LogGap]


@router.get("/logs", response_model=LogPage, responses={200: EVENT_STREAM, 204: EVENTS_OVER})
async def read_logs(
    sandbox_ids: SandboxIdsQuery,
    caller: Reader,
    timelines: TimelinesDep,
    listener: ListenerDep,
    sources: Sources = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Read events and output of several sandboxes in one order. With `Accept: text/event-stream`, also stream new records until all have ended."""
    source = LogSource(
        tenant_id=caller.tenant_id,
        sandbox_ids=tuple(sorted(set(sandbox_ids))),
        kinds=frozenset(sources or USUAL),
    )
    await timelines.require_sandboxes(caller, *source.sandbox_ids)
    return await _answer(timelines, listener, source, cursor=cursor, limit=limit)


@router.get(
    "/sandboxes/{sandbox_id}/logs",
    response_model=LogPage,
    responses={200: EVENT_STREAM, 204: EVENTS_OVER},
)
async def read_sandbox_logs(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    timelines: TimelinesDep,
    listener: ListenerDep,
    sources: Sources = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Read events and output of a sandbox in one order. With `Accept: text/event-stream`, also stream new records until it has ended."""
    await timelines.require_sandboxes(caller, sandbox_id)
    source = LogSource(
        tenant_id=caller.tenant_id,
        sandbox_ids=(sandbox_id,),
        kinds=frozenset(sources or USUAL),
    )
    return await _answer(timelines, listener, source, cursor=cursor, limit=limit)


async def _answer(
    timelines: Timelines, listener: Listener, source: LogSource, *, cursor: str | None, limit: int
) -> Response:
    if listener.asks_for_events:
        return await listener.stream(source, meanwhile=timelines.recording(listener.caller, source))
    begin = read_number(cursor) or listener.after or 0
    return respond_with_page(await timelines.read_log(source, after=begin, limit=limit))
