from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from sandbox_server.browsers.api import BrowserSessionsDep
from sandbox_server.browsers.api_records import PageNumber, SessionRecordingsDep
from sandbox_server.browsers.records.videos import VideoFormat
from sandbox_server.browsers.tokens import BROWSER_PATH, BrowserCaller, BrowserUse
from sandbox_server.domain import errors
from sandbox_server.domain.errors import BrowserPathNotFound
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import BrowserIdPath, Operator
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(route_class=JsonRoute, tags=["browsers"])

_TYPES = {VideoFormat.MP4: "video/mp4", VideoFormat.SEGMENT: "video/mp2t"}
_MP4 = {"description": "The video.", "content": {"video/mp4": {}}}


@router.get(
    "/v1/browsers/{browser_id}/recordings/{page}", responses={200: _MP4}, response_class=Response
)
@may_fail_with(errors.BrowserRecordingNotFound, errors.FeatureUnavailable)
async def read_browser_recording(
    browser_id: BrowserIdPath,
    page: PageNumber,
    caller: Operator,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
) -> Response:
    """Get the recording of a page as MP4, which is made from its pictures for this request."""
    row = await browsers.get(caller, browser_id)
    video = await recordings.make_video(row, page, VideoFormat.MP4)
    return Response(video, media_type=_TYPES[VideoFormat.MP4])


@router.get(f"{BROWSER_PATH}{{token}}/recordings/{{page}}.{{kind}}", include_in_schema=False)
async def read_linked_recording(
    page: PageNumber,
    kind: Annotated[VideoFormat, Path()],
    request: Request,
    browsers: BrowserSessionsDep,
    recordings: SessionRecordingsDep,
) -> Response:
    """Get the recording of a page by a link, whose token is in the path."""
    caller = request.state.caller
    if not isinstance(caller, BrowserCaller) or caller.use is not BrowserUse.RECORDINGS:
        raise BrowserPathNotFound(request.url.path)
    row = await browsers.get_of_link(caller.sandbox_id)
    video = await recordings.make_video(row, page, kind)
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response(video, media_type=_TYPES[kind], headers=headers)
