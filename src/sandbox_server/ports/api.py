from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body

from sandbox_client.models import LinkCreate, LinkCreated, PortUrls
from sandbox_server.access.tickets import Tickets
from sandbox_server.domain import errors
from sandbox_server.domain.access import Caller, TicketScope
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import (
    Operator,
    PortPath,
    Reader,
    SandboxIdPath,
    ServicesDep,
    TicketsDep,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.sandboxes.views import view_port
from sandbox_server.services import Services

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/ports/{port}", tags=["ports"]
)


@router.get("")
@may_fail_with(errors.InvalidTransition, errors.NotReady)
async def get_port(
    sandbox_id: SandboxIdPath, port: PortPath, caller: Reader, services: ServicesDep
) -> PortUrls:
    """Tell where a port of a sandbox is reached, whether or not something listens there.

    HTTP, WebSockets and streams are passed on; what is asked of a paused sandbox wakes it. `path_url` takes any method.
    """
    return view_port(services, await services.controller.get(caller, sandbox_id), port)


@router.post("/links", status_code=201)
@may_fail_with(errors.TooManyTickets)
async def create_link(
    sandbox_id: SandboxIdPath,
    port: PortPath,
    body: Annotated[LinkCreate, Body(default_factory=LinkCreate)],
    caller: Operator,
    services: ServicesDep,
    tickets: TicketsDep,
) -> LinkCreated:
    """Make a link to a port for people without a key; it ends with its time, or with the key that made it."""
    return await make_link(services, tickets, caller, sandbox_id, port, body)


async def make_link(
    services: Services,
    tickets: Tickets,
    caller: Caller,
    sandbox_id: str,
    port: int,
    wanted: LinkCreate,
) -> LinkCreated:
    issued = await tickets.issue(
        caller,
        scope=TicketScope.PORT,
        sandbox_id=sandbox_id,
        port=port,
        ttl=timedelta(seconds=wanted.ttl_s),
    )
    url = services.public_address.url(sandbox_id, port) + wanted.path
    separator = "&" if "?" in wanted.path else "?"
    return LinkCreated(url=f"{url}{separator}ticket={issued.secret}", expires_at=issued.expires_at)
