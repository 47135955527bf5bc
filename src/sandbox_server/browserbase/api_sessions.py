from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from sandbox_server.browserbase.api_session_files import BrowserSessionsDep, LiveUrlsDep
from sandbox_server.browserbase.models import SessionBody, SessionStatus, SessionUpdateBody
from sandbox_server.browserbase.requests import read_metadata_query, read_session_request
from sandbox_server.browserbase.views import (
    view_playlist,
    view_recorded_page,
    view_session,
    view_video,
)
from sandbox_server.browsers.records.recordings import SessionRecordings
from sandbox_server.browsers.records.session_logs import SessionLogs
from sandbox_server.domain.computers.browsers import SessionState
from sandbox_server.domain.errors import BrowserRecordingNotFound
from sandbox_server.http.deps import BrowserIdPath, Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(
    route_class=JsonRoute, prefix="/browserbase/v1/sessions", include_in_schema=False
)

SessionLogsDep = Annotated[SessionLogs, depends_on(SessionLogs)]
SessionRecordingsDep = Annotated[SessionRecordings, depends_on(SessionRecordings)]

# Clients give up after 60 s; a session without a slot until then is answered as pending.
_WAIT = timedelta(seconds=45)
_MOST_LISTED = 1000


@router.post("", status_code=201)
async def create_session(
    body: Annotated[SessionBody, Body(default_factory=SessionBody)],
    caller: Operator,
    browsers: BrowserSessionsDep,
    live: LiveUrlsDep,
) -> dict[str, Any]:
    """Create a session."""
    row = await browsers.create(caller, read_session_request(body), wait=_WAIT)
    return {**view_session(row), **live.drive(caller, row)}


@router.get("")
async def list_sessions(
    caller: Reader,
    browsers: BrowserSessionsDep,
    status: SessionStatus | None = None,
    q: Annotated[str | None, Query(max_length=2000)] = None,
) -> list[dict[str, Any]]:
    """List sessions, newest first."""
    rows = await browsers.list_page(
        caller,
        states=() if status is None else [SessionState(status.lower())],
        labels=read_metadata_query(q),
        limit=_MOST_LISTED,
    )
    return [view_session(row) for row in rows]


@router.get("/{browser_id}")
async def get_session(
    browser_id: BrowserIdPath, caller: Operator, browsers: BrowserSessionsDep, live: LiveUrlsDep
) -> dict[str, Any]:
    """Get a session."""
    row = await browsers.get(caller, browser_id)
    return {**view_session(row), **live.drive(caller, row)}


@router.post("/{browser_id}")
async def update_session(
    browser_id: BrowserIdPath,
    _body: SessionUpdateBody,
    caller: Operator,
    browsers: BrowserSessionsDep,
) -> dict[str, Any]:
    """Release a session."""
    return view_session(await browsers.release(caller, browser_id))


@router.get("/{browser_id}/recording")
async def get_recording(
    browser_id: BrowserIdPath, caller: Reader, browsers: BrowserSessionsDep
) -> list[dict[str, Any]]:
    """Return no rrweb events: Browserbase itself has given them up."""
    await browsers.get(caller, browser_id)
    return []


@router.get("/{browser_id}/replays")
async def get_replays(
    browser_id: BrowserIdPath,
    caller: Reader,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
) -> dict[str, Any]:
    """List the pages of which there are pictures."""
    row = await browsers.get(caller, browser_id)
    pages = [view_recorded_page(each) for each in await recordings.list_pages(row)]
    return {"pageCount": len(pages), "pages": pages}


@router.get("/{browser_id}/logs")
async def list_logs(
    browser_id: BrowserIdPath, caller: Operator, browsers: BrowserSessionsDep, logs: SessionLogsDep
) -> list[dict[str, Any]]:
    """List the CDP messages of a session's drivers, oldest first."""
    return await logs.list_messages(await browsers.get(caller, browser_id))


@router.get("/{browser_id}/replays/{page_id}", response_class=Response)
async def get_replay(
    browser_id: BrowserIdPath,
    page_id: int,
    caller: Operator,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
    live: LiveUrlsDep,
) -> Response:
    """Get the playlist of a page's video, for players of HLS. It is of one segment, which is made when it is fetched."""
    row = await browsers.get(caller, browser_id)
    found = {each.page: each for each in await recordings.list_pages(row)}
    if page_id not in found:
        raise BrowserRecordingNotFound(f"{row.id}/{page_id}")
    url = f"{live.recordings(caller, row)}/{page_id}.ts"
    return Response(view_playlist(found[page_id], url), media_type="application/vnd.apple.mpegurl")


@router.post("/{browser_id}/recording/downloads")
@router.get("/{browser_id}/recording/downloads")
async def list_videos(
    browser_id: BrowserIdPath,
    caller: Operator,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
    live: LiveUrlsDep,
) -> dict[str, Any]:
    """List the MP4s of a session's pages. Each is made when it is fetched, so all are complete at once."""
    row = await browsers.get(caller, browser_id)
    base = live.recordings(caller, row)
    pages = await recordings.list_pages(row)
    return {"downloads": [view_video(each, f"{base}/{each.page}.mp4") for each in pages]}
