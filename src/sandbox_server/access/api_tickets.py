from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body

from sandbox_client.models import TicketCreate, TicketCreated
from sandbox_server.access.tickets import Tickets
from sandbox_server.domain import errors
from sandbox_server.domain.access import TicketScope
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Reader, depends_on
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(prefix="/v1/tickets", tags=["access"], route_class=JsonRoute)

TicketsDep = Annotated[Tickets, depends_on(Tickets)]


@router.post("", status_code=201)
@may_fail_with(errors.SandboxNotFound, errors.TooManyTickets)
async def create_ticket(
    caller: Reader,
    body: Annotated[TicketCreate, Body(default_factory=TicketCreate)],
    tickets: TicketsDep,
) -> TicketCreated:
    """Create a ticket: a short-lived, restricted credential for a browser, where EventSource and WebSocket cannot send headers.

    Pass it in the URL as `?ticket=`. It can be used any number of times until it expires or the API key that created it is revoked.
    """
    issued = await tickets.issue(
        caller,
        scope=TicketScope(body.scope),
        sandbox_id=body.sandbox_id,
        ttl=timedelta(seconds=body.ttl_s),
    )
    return TicketCreated(
        ticket=issued.secret,
        scope=body.scope,
        sandbox_id=body.sandbox_id,
        expires_at=issued.expires_at,
    )
