from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response
from starlette.types import Receive, Scope, Send

from sandbox_client.models import (
    DesktopRecordingOptions,
    DesktopRecordingRead,
    DesktopRecordingState,
    Page,
)
from sandbox_server.desktops.api import GUEST
from sandbox_server.desktops.recordings import DesktopRecordings
from sandbox_server.domain import errors
from sandbox_server.domain.access import Caller
from sandbox_server.http.declared_errors import PASSED_ON, WOKEN, may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on, find_component
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.waiting import Wait
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.public_origin import path_origin
from sandbox_server.proxy.targets import PublicAddress

PATH = "/v1/sandboxes/{sandbox_id}/desktop/recordings"

router = APIRouter(route_class=JsonRoute, prefix=PATH, tags=["desktops"])

RecordingsDep = Annotated[DesktopRecordings, depends_on(DesktopRecordings)]
RecordingId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
AtSecond = Annotated[
    float, Query(ge=0, le=10**6, allow_inf_nan=False, description="Second of the recording.")
]
_MP4 = {"description": "The recording.", "content": {"video/mp4": {}}}
_JPEG = {"description": "The picture.", "content": {"image/jpeg": {}}}


class RecordingResponse(Response):
    """Forwards the recording from the sandbox."""

    def __init__(
        self, recordings: DesktopRecordings, caller: Caller, sandbox_id: str, recording_id: str
    ) -> None:
        super().__init__()
        self._recordings = recordings
        self._caller = caller
        self._ids = sandbox_id, recording_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        prefix = PATH.format(sandbox_id=self._ids[0])
        origin = path_origin(client, find_component(scope, PublicAddress), path=prefix)
        await self._recordings.download(client, self._caller, *self._ids, origin=origin)


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
@may_fail_with(*WOKEN, *GUEST)
async def list_desktop_recordings(
    sandbox_id: SandboxIdPath, caller: Operator, recordings: RecordingsDep, wait: Wait = 30
) -> Page[DesktopRecordingRead]:
    """List the recordings that have ended, oldest first. They are files of the sandbox, which is resumed if it is paused."""
    items = await recordings.list_all(caller, sandbox_id, wait=timedelta(seconds=wait))
    return Page(items=items, next_cursor=None)


@router.get("/{recording_id}", responses={200: _MP4, 206: _MP4}, response_class=Response)
@may_fail_with(*PASSED_ON, errors.DesktopNotRunning)
async def read_desktop_recording(
    sandbox_id: SandboxIdPath,
    recording_id: RecordingId,
    caller: Operator,
    recordings: RecordingsDep,
) -> Response:
    """Download a recording as MP4; `Range` selects a part."""
    return RecordingResponse(recordings, caller, sandbox_id, recording_id)


@router.get("/{recording_id}/frame", responses={200: _JPEG}, response_class=Response)
@may_fail_with(*WOKEN, *GUEST, errors.DesktopRecordingNotFound)
async def get_desktop_frame(
    sandbox_id: SandboxIdPath,
    recording_id: RecordingId,
    at_s: AtSecond,
    caller: Operator,
    recordings: RecordingsDep,
    wait: Wait = 30,
) -> Response:
    """Get the picture that was shown at a second of a recording, as JPEG."""
    content = await recordings.frame(
        caller, sandbox_id, recording_id, at=at_s, wait=timedelta(seconds=wait)
    )
    return Response(content, media_type="image/jpeg")


@router.delete("/{recording_id}", status_code=204)
@may_fail_with(*WOKEN, *GUEST, errors.DesktopRecordingNotFound)
async def delete_desktop_recording(
    sandbox_id: SandboxIdPath,
    recording_id: RecordingId,
    caller: Operator,
    recordings: RecordingsDep,
    wait: Wait = 30,
) -> None:
    """Delete a recording that has ended."""
    await recordings.delete(caller, sandbox_id, recording_id, wait=timedelta(seconds=wait))
