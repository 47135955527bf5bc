"""Requests of the page of a desktop, by a link's ticket; the page itself is in `web`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from sandbox_client.models import RequestModel
from sandbox_server.desktops.repository import ValidLink
from sandbox_server.desktops.service import DesktopState
from sandbox_server.desktops.viewers import DesktopViewers
from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.computers.desktops import DesktopHolder, DesktopMode
from sandbox_server.domain.errors import TicketRefused
from sandbox_server.http.deps import SandboxIdPath, depends_on, find_component
from sandbox_server.http.faults import Malformed
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.public_origin import path_origin
from sandbox_server.proxy.targets import PublicAddress

router = APIRouter(route_class=JsonRoute, prefix="/desktop/{sandbox_id}", include_in_schema=False)

ViewersDep = Annotated[DesktopViewers, depends_on(DesktopViewers)]


class HolderWish(RequestModel):
    """Request to give control of the desktop to a person or to the agent."""

    holder: DesktopHolder


async def find_visitor(connection: HTTPConnection) -> TicketCaller:
    caller = connection.state.caller
    if not isinstance(caller, TicketCaller) or not caller.scope.is_of_desktop:
        raise TicketRefused("This page is opened by a link to the desktop.")
    return caller


Visitor = Annotated[TicketCaller, Depends(find_visitor)]


class ViewerResponse(Response):
    """Connects the viewer to the desktop in the sandbox."""

    def __init__(
        self, viewers: DesktopViewers, caller: TicketCaller, link: ValidLink, mode: DesktopMode
    ) -> None:
        super().__init__()
        self._viewers = viewers
        self._caller = caller
        self._link = link
        self._mode = mode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        prefix = f"/desktop/{self._link.sandbox_id}"
        origin = path_origin(client, find_component(scope, PublicAddress), path=prefix)
        await self._viewers.connect(client, self._caller, self._link, self._mode, origin=origin)


@router.get("/state")
async def get_viewed_desktop(
    sandbox_id: SandboxIdPath, caller: Visitor, viewers: ViewersDep
) -> dict[str, Any]:
    del sandbox_id  # the ticket's
    link = await viewers.find_link(caller)
    return _view(link, await viewers.get(caller, link))


@router.post("/control")
async def set_viewed_control(
    sandbox_id: SandboxIdPath, body: HolderWish, caller: Visitor, viewers: ViewersDep
) -> dict[str, Any]:
    del sandbox_id
    link = await viewers.find_link(caller)
    return _view(link, await viewers.set_holder(caller, link, body.holder))


@router.get("/vnc")
async def connect_viewer(
    sandbox_id: SandboxIdPath,
    request: Request,
    caller: Visitor,
    viewers: ViewersDep,
    mode: Annotated[DesktopMode, Query()] = DesktopMode.VIEW,
) -> Response:
    del sandbox_id
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise Malformed("This endpoint requires a WebSocket upgrade.")
    return ViewerResponse(viewers, caller, await viewers.find_link(caller), mode)


def _view(link: ValidLink, state: DesktopState) -> dict[str, Any]:
    wanted = state.wanted
    desktop = wanted.desktop if wanted.is_held else None
    return {
        "mode": link.mode,
        "expires_at": link.expires_at.isoformat(),
        "sandbox": wanted.row.state,
        "stream": wanted.settings.stream,
        "holder": DesktopHolder.AGENT if desktop is None else DesktopHolder.PERSON,
        "name": None if desktop is None else desktop.holder_name,
        "is_mine": desktop is not None and desktop.holder_link_id == link.id,
    }
