from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, UploadFile
from starlette.responses import Response

from sandbox_server.browserbase.live import LiveUrls
from sandbox_server.browsers.downloads import SessionDownloads
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.http.deps import BrowserIdPath, Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(
    route_class=JsonRoute,
    prefix="/browserbase/v1/sessions/{browser_id}",
    include_in_schema=False,
)

BrowserSessionsDep = Annotated[BrowserSessions, depends_on(BrowserSessions)]
DownloadsDep = Annotated[SessionDownloads, depends_on(SessionDownloads)]
LiveUrlsDep = Annotated[LiveUrls, depends_on(LiveUrls)]


@router.get("/debug")
async def get_debug_urls(
    browser_id: BrowserIdPath,
    caller: Operator,
    browsers: BrowserSessionsDep,
    live: LiveUrlsDep,
    expires_in: Annotated[int, Query(alias="expiresIn", ge=1, le=86400)] = 3600,
) -> dict[str, Any]:
    """List the pages of a session, with URLs that show them."""
    row = await browsers.get(caller, browser_id)
    return await live.debug(caller, row, lifetime=timedelta(seconds=expires_in))


@router.get("/downloads")
async def get_downloads(
    browser_id: BrowserIdPath, caller: Reader, browsers: BrowserSessionsDep, downloads: DownloadsDep
) -> Response:
    """Get the files that a session has downloaded, as a zip archive."""
    row = await browsers.get(caller, browser_id)
    archive = await downloads.read_archive(caller, row)
    return Response(archive, media_type="application/zip")


@router.post("/uploads")
async def upload_file(
    browser_id: BrowserIdPath,
    file: UploadFile,
    caller: Operator,
    browsers: BrowserSessionsDep,
    downloads: DownloadsDep,
) -> dict[str, str]:
    """Put a file into the sandbox of a session, for file inputs of its pages."""
    row = await browsers.get(caller, browser_id)
    path = await downloads.upload(caller, row, file.filename or "", await file.read())
    return {"message": f"The file is at {path}."}
