import re
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from sandbox_client.models import (
    DesktopRecordingOptions,
    DesktopRecordingRead,
    DesktopRecordingState,
    Page,
)
from sandbox_server.desktops.api import GUEST
from sandbox_server.desktops.recordings import DesktopRecordings
from sandbox_server.desktops.views import view_recording
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import WOKEN, may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.waiting import Wait

PATH = "/v1/sandboxes/{sandbox_id}/desktop/recordings"

router = APIRouter(route_class=JsonRoute, prefix=PATH, tags=["desktops"])

RecordingsDep = Annotated[DesktopRecordings, depends_on(DesktopRecordings)]
RecordingId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
AtSecond = Annotated[
    float, Query(ge=0, le=10**6, allow_inf_nan=False, description="Second of the recording.")
]
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})")
_MP4 = {"description": "The recording.", "content": {"video/mp4": {}}}
_JPEG = {"description": "The picture.", "content": {"image/jpeg": {}}}


@router.post("", status_code=201)
@may_fail_with(*WOKEN, *GUEST)
async def create_desktop_recording(
    sandbox_id: SandboxIdPath,
    body: Annotated[DesktopRecordingOptions, Body(default_factory=DesktopRecordingOptions)],
    caller: Operator,
    recordings: RecordingsDep,
    wait: Wait = 30,
) -> DesktopRecordingState:
    """Start recording the desktop. Returns the current recording if there is one with these frames per second."""
    return await recordings.start(caller, sandbox_id, fps=body.fps, wait=timedelta(seconds=wait))


@router.delete("/current", status_code=204)
@may_fail_with(*GUEST, errors.InvalidTransition)
async def end_desktop_recording(
    sandbox_id: SandboxIdPath, caller: Operator, recordings: RecordingsDep
) -> None:
    """Stop recording the desktop; no effect if nothing is recorded."""
    await recordings.stop(caller, sandbox_id)


@router.get("")
async def list_desktop_recordings(
    sandbox_id: SandboxIdPath, caller: Operator, recordings: RecordingsDep
) -> Page[DesktopRecordingRead]:
    """List recordings, oldest first. The server keeps them, also when their sandbox is deleted.

    `end_reason` is null while one goes on; it is copied from its sandbox once a minute, and when it is listed.
    """
    found = await recordings.list_all(caller, sandbox_id)
    return Page(items=[view_recording(each) for each in found], next_cursor=None)


@router.get("/{recording_id}", responses={200: _MP4, 206: _MP4}, response_class=Response)
@may_fail_with(errors.DesktopRecordingNotFound, errors.RangeOutside)
async def read_desktop_recording(
    sandbox_id: SandboxIdPath,
    recording_id: RecordingId,
    caller: Operator,
    recordings: RecordingsDep,
    wanted: Annotated[str | None, Header(alias="range", include_in_schema=False)] = None,
) -> Response:
    """Download a recording as MP4, as far as it was copied from its sandbox; `Range` selects a part."""
    video = await recordings.open(caller, sandbox_id, recording_id)
    part = find_range(wanted, video.size)
    start, end = part or (0, video.size)
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(end - start)}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{video.size}"
    return StreamingResponse(
        recordings.read(video, start, end),
        HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT,
        headers,
        "video/mp4",
    )


@router.get("/{recording_id}/frame", responses={200: _JPEG}, response_class=Response)
@may_fail_with(errors.DesktopRefused, errors.DesktopRecordingNotFound)
async def get_desktop_frame(
    sandbox_id: SandboxIdPath,
    recording_id: RecordingId,
    at_s: AtSecond,
    caller: Operator,
    recordings: RecordingsDep,
) -> Response:
    """Get the picture that was shown at a second of a recording, as JPEG."""
    content = await recordings.frame(caller, sandbox_id, recording_id, at_s=at_s)
    return Response(content, media_type="image/jpeg")


@router.delete("/{recording_id}", status_code=204)
@may_fail_with(errors.DesktopRefused, errors.DesktopRecordingNotFound)
async def delete_desktop_recording(
    sandbox_id: SandboxIdPath,
    recording_id: RecordingId,
    caller: Operator,
    recordings: RecordingsDep,
) -> None:
    """Delete a recording that has ended."""
    await recordings.delete(caller, sandbox_id, recording_id)


def find_range(wanted: str | None, size: int) -> tuple[int, int] | None:
    """Read a `Range` header; None is the whole file, as for several ranges and invalid headers."""
    match = None if wanted is None else _RANGE.fullmatch(wanted.strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(int(match[2] or size) + 1, size)
        if match[2] and int(match[2]) < start:
            return None
    if start >= end:
        raise errors.RangeOutside("recording", size=size)
    return start, end
