from datetime import timedelta

from sandbox_client.models import LinkCreated
from sandbox_server.access.tickets import Tickets
from sandbox_server.domain.access import Caller, TicketScope
from sandbox_server.proxy.targets import PublicAddress


class PortLinks:
    """Creates preview links: URLs of a port with a ticket in them."""

    def __init__(self, tickets: Tickets, public_address: PublicAddress) -> None:
        self._tickets = tickets
        self._public_address = public_address

    async def create(
        self, caller: Caller, sandbox_id: str, port: int, *, ttl: timedelta, path: str = "/"
    ) -> LinkCreated:
        issued = await self._tickets.issue(
            caller, scope=TicketScope.PORT, sandbox_id=sandbox_id, port=port, ttl=ttl
        )
        url = self._public_address.url(sandbox_id, port) + path
        separator = "&" if "?" in path else "?"
        return LinkCreated(
            url=f"{url}{separator}ticket={issued.secret}", expires_at=issued.expires_at
        )
