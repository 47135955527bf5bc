from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from sandbox_client.models import BrowserLogEntry, BrowserLogKind, BrowserRecordingRead, Page
from sandbox_server.browsers.api import BrowserSessionsDep
from sandbox_server.browsers.records.entries import EntryKind, LogEntry
from sandbox_server.browsers.records.recordings import SessionRecordings
from sandbox_server.browsers.records.session_logs import EntryPosition, SessionLogs
from sandbox_server.browsers.records.store import MOST_PAGES
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import BrowserIdPath, Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_text

router = APIRouter(route_class=JsonRoute, prefix="/v1/browsers/{browser_id}", tags=["browsers"])

SessionLogsDep = Annotated[SessionLogs, depends_on(SessionLogs)]
SessionRecordingsDep = Annotated[SessionRecordings, depends_on(SessionRecordings)]
PageNumber = Annotated[int, Path(ge=0, le=MOST_PAGES, description="Number of the page.")]
AtSecond = Annotated[
    float, Query(ge=0, le=10**6, allow_inf_nan=False, description="Second of the recording.")
]
_JPEG = {"description": "The picture.", "content": {"image/jpeg": {}}}


@router.get("/logs")
async def list_browser_logs(
    browser_id: BrowserIdPath,
    caller: Reader,
    browsers: BrowserSessionsDep,
    logs: SessionLogsDep,
    kind: Annotated[
        BrowserLogKind | None, Query(description="Filter by kind. Default: every kind.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[BrowserLogEntry]:
    """List what the pages of a session wrote to their consoles, requested and failed at, oldest first; also after its end."""
    row = await browsers.get(caller, browser_id)
    position = read_text(cursor)
    found = await logs.list_entries(
        row,
        kind=None if kind is None else EntryKind(kind),
        after=EntryPosition() if position is None else EntryPosition.parse(position),
        limit=limit + 1,
    )
    items = [view_entry(entry) for _, entry in found]
    return page_of(found, items, limit=limit, position=lambda each: str(each[0]))


def view_entry(entry: LogEntry) -> BrowserLogEntry:
    return BrowserLogEntry(
        at=_instant(entry.at_ms),
        page=entry.page,
        kind=BrowserLogKind(entry.kind),
        text=entry.text,
        level=entry.level,
        url=entry.url,
        method=entry.method,
        status=entry.status,
        resource_type=entry.resource_type,
        duration_ms=entry.duration_ms,
    )


@router.get("/recordings")
async def list_browser_recordings(
    browser_id: BrowserIdPath,
    caller: Operator,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
) -> Page[BrowserRecordingRead]:
    """List the pages of a session that were recorded; also after its end."""
    row = await browsers.get(caller, browser_id)
    items = [
        BrowserRecordingRead(
            page=each.page,
            url=each.url,
            started_at=_instant(each.first_ms),
            ended_at=_instant(each.last_ms),
        )
        for each in await recordings.list_pages(row)
    ]
    return Page(items=items, next_cursor=None)


@router.get("/recordings/{page}/frame", responses={200: _JPEG}, response_class=Response)
@may_fail_with(errors.BrowserRecordingNotFound)
async def get_browser_frame(
    browser_id: BrowserIdPath,
    page: PageNumber,
    at_s: AtSecond,
    caller: Operator,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
) -> Response:
    """Get the picture that a page showed at a second of its recording, as JPEG."""
    row = await browsers.get(caller, browser_id)
    picture = await recordings.read_frame(row, page, at_s=at_s)
    return Response(picture, media_type="image/jpeg")


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
