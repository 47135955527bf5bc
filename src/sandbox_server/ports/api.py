from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body

from sandbox_client.models import LinkCreate, LinkCreated, PortUrls
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import (
    Operator,
    PortPath,
    Reader,
    SandboxIdPath,
    depends_on,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.ports.links import PortLinks
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.views import SandboxViews

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/ports/{port}", tags=["ports"]
)


PortLinksDep = Annotated[PortLinks, depends_on(PortLinks)]
ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]
SandboxViewsDep = Annotated[SandboxViews, depends_on(SandboxViews)]


@router.get("")
@may_fail_with(errors.InvalidTransition, errors.NotReady)
async def get_port(
    sandbox_id: SandboxIdPath,
    port: PortPath,
    caller: Reader,
    controller: ControllerDep,
    views: SandboxViewsDep,
) -> PortUrls:
    """Get the URLs of a port, whether or not a server listens there.

    Requests, WebSockets and streams to these URLs are forwarded, and resume a paused sandbox. `path_url` accepts any method.
    """
    return views.view_port(await controller.get(caller, sandbox_id), port)


@router.post("/links", status_code=201)
@may_fail_with(errors.TooManyTickets)
async def create_link(
    sandbox_id: SandboxIdPath,
    port: PortPath,
    body: Annotated[LinkCreate, Body(default_factory=LinkCreate)],
    caller: Operator,
    links: PortLinksDep,
) -> LinkCreated:
    """Create a link to a port for people without an API key. It expires after `ttl_s`, and earlier if its key is revoked."""
    ttl = timedelta(seconds=body.ttl_s)
    return await links.create(caller, sandbox_id, port, ttl=ttl, path=body.path)
