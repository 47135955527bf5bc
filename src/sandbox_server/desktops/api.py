from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Response

from sandbox_client.models import (
    DesktopAction,
    DesktopActionResult,
    DesktopControlUpdate,
    DesktopLinkCreate,
    DesktopLinkCreated,
    DesktopLinkRead,
    DesktopRead,
    DesktopUpdate,
    Page,
)
from sandbox_server.desktops.control import Person
from sandbox_server.desktops.links import DesktopLinks
from sandbox_server.desktops.repository import ValidLink
from sandbox_server.desktops.service import Desktops, DesktopState
from sandbox_server.desktops.views import view_desktop
from sandbox_server.domain import errors
from sandbox_server.domain.computers.desktops import DesktopHolder, DesktopMode, DesktopPatch
from sandbox_server.http.declared_errors import WOKEN, may_fail_with
from sandbox_server.http.deps import Operator, Reader, SandboxIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.waiting import Wait

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/desktop", tags=["desktops"]
)

DesktopLinksDep = Annotated[DesktopLinks, depends_on(DesktopLinks)]
DesktopsDep = Annotated[Desktops, depends_on(Desktops)]
MediaType = Annotated[Literal["png", "jpeg"], Query(alias="format")]
Quality = Annotated[int, Query(ge=1, le=100, description="Quality of a JPEG.")]

GUEST = (
    *(errors.DesktopNotRunning, errors.DesktopRefused, errors.ToolsRefused),
    *(errors.PortBroken, errors.PortSilent, errors.BackendUnavailable),
)
USED = (*WOKEN, *GUEST, errors.DesktopControlled)
_IMAGE = {
    "description": "The screen.",
    "content": {"image/png": {}, "image/jpeg": {}},
}


@router.get("")
@may_fail_with(*GUEST)
async def get_desktop(
    sandbox_id: SandboxIdPath, caller: Reader, desktops: DesktopsDep
) -> DesktopRead:
    """Get the state of a sandbox's desktop. Does not resume a paused sandbox: then only the settings are known."""
    return _view(await desktops.get(caller, sandbox_id))


@router.patch("")
@may_fail_with(*GUEST, errors.InvalidTransition)
async def update_desktop(
    sandbox_id: SandboxIdPath, body: DesktopUpdate, caller: Operator, desktops: DesktopsDep
) -> DesktopRead:
    """Change resolution, DPI, streaming or recording: at once, or when a paused sandbox resumes."""
    return _view(await desktops.update(caller, sandbox_id, _to_patch(body)))


@router.post("/actions")
@may_fail_with(*USED)
async def run_desktop_action(
    sandbox_id: SandboxIdPath,
    body: DesktopAction,
    caller: Operator,
    desktops: DesktopsDep,
    wait: Wait = 30,
) -> DesktopActionResult:
    """Carry out one action on the desktop, and with `screenshot` return what it looks like then.

    Refused with 409 while a person has control.
    """
    return await desktops.act(caller, sandbox_id, body, wait=timedelta(seconds=wait))


@router.get("/screenshot", responses={200: _IMAGE}, response_class=Response)
@may_fail_with(*WOKEN, *GUEST)
async def get_screenshot(
    sandbox_id: SandboxIdPath,
    caller: Operator,
    desktops: DesktopsDep,
    media: MediaType = "png",
    quality: Quality = 80,
    wait: Wait = 30,
) -> Response:
    """Get a screenshot of the desktop as PNG or JPEG."""
    answer = await desktops.screenshot(
        caller, sandbox_id, media=media, quality=quality, wait=timedelta(seconds=wait)
    )
    return Response(answer.body, media_type=f"image/{media}")


@router.post("/control")
@may_fail_with(*USED)
async def set_desktop_control(
    sandbox_id: SandboxIdPath,
    body: DesktopControlUpdate,
    caller: Operator,
    desktops: DesktopsDep,
    wait: Wait = 30,
) -> DesktopRead:
    """Give control to a person, for at most `ttl_s`, or back to the agent.

    While a person has control, actions of agents are refused with 409. People usually take control in the page of a link.
    """
    state = await desktops.set_holder(
        caller,
        sandbox_id,
        DesktopHolder(body.holder),
        Person(actor=caller.actor),
        lease=timedelta(seconds=body.ttl_s),
        wait=timedelta(seconds=wait),
    )
    return _view(state)


@router.post("/links", status_code=201)
@may_fail_with(errors.TooManyTickets, errors.DesktopNotStreamed, errors.InvalidTransition)
async def create_desktop_link(
    sandbox_id: SandboxIdPath,
    body: Annotated[DesktopLinkCreate, Body(default_factory=DesktopLinkCreate)],
    caller: Operator,
    links: DesktopLinksDep,
) -> DesktopLinkCreated:
    """Create a link to a page that shows the desktop to a person without an API key, or lets them take control.

    It expires after `ttl_s`, and earlier if it or its API key is revoked.
    """
    made = await links.create(
        caller,
        sandbox_id,
        mode=DesktopMode(body.mode),
        ttl=timedelta(seconds=body.ttl_s),
        name=body.name,
    )
    return DesktopLinkCreated(**_view_link(made.link).model_dump(), url=made.url)


@router.get("/links")
async def list_desktop_links(
    sandbox_id: SandboxIdPath, caller: Reader, links: DesktopLinksDep
) -> Page[DesktopLinkRead]:
    """List the valid links of a desktop, newest first, without their URLs."""
    items = [_view_link(link) for link in await links.list_all(caller, sandbox_id)]
    return Page(items=items, next_cursor=None)


@router.delete("/links/{link_id}", status_code=204)
@may_fail_with(errors.DesktopLinkNotFound)
async def revoke_desktop_link(
    sandbox_id: SandboxIdPath, link_id: str, caller: Operator, links: DesktopLinksDep
) -> None:
    """Revoke a link. Its pages are disconnected, and its person loses control."""
    await links.revoke(caller, sandbox_id, link_id)


def _view_link(link: ValidLink) -> DesktopLinkRead:
    return DesktopLinkRead.model_validate(link, from_attributes=True)


def _view(state: DesktopState) -> DesktopRead:
    wanted = state.wanted
    return view_desktop(wanted.settings, wanted.desktop, state.live, is_held=wanted.is_held)


def _to_patch(body: DesktopUpdate) -> DesktopPatch:
    """Read a patch; null leaves a value unchanged, except that it stops the recording."""
    patch: DesktopPatch = {}
    if body.resolution is not None:
        patch["width"], patch["height"] = body.resolution.width, body.resolution.height
    if body.dpi is not None:
        patch["dpi"] = body.dpi
    if body.stream is not None:
        patch["stream"] = body.stream
    if "recording" in body.model_fields_set:
        patch["fps"] = None if body.recording is None else body.recording.fps
    return patch
