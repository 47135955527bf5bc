from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.secrets import hash_of, new_ticket
from sandbox_server.access.ticket_repository import TicketRepository
from sandbox_server.db.models import Ticket
from sandbox_server.db.session import Sessions
from sandbox_server.domain.access import Caller, TicketCaller, TicketScope
from sandbox_server.domain.errors import TicketRefused, TooManyTickets
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository

MOST = 10_000
_RETRY_AFTER = timedelta(seconds=30)


@dataclass(frozen=True)
class IssuedTicket:
    """A new ticket's secret, which nobody can tell again, and when it ends."""

    secret: str = field(repr=False)
    expires_at: datetime


class Tickets:
    """Keys for a while and for a little, which may stand in a URL: browsers can send no header with a stream."""

    def __init__(self, sessions: Sessions, authenticator: Authenticator) -> None:
        self._sessions = sessions
        self._authenticator = authenticator

    async def issue(
        self,
        caller: Caller,
        *,
        scope: TicketScope,
        ttl: timedelta,
        sandbox_id: str | None = None,
        port: int | None = None,
    ) -> IssuedTicket:
        """Make a ticket that is no wider than the caller's own key, and ends with it."""
        if isinstance(caller, TicketCaller):
            raise TicketRefused("A ticket makes no tickets.")
        caller.require(scope.needed)
        secret = new_ticket()
        async with self._sessions.begin() as session:
            if sandbox_id is not None:
                await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)
            tickets = TicketRepository(session)
            if await tickets.count(caller.tenant_id, most=MOST) >= MOST:
                raise TooManyTickets(MOST, retry_after=_RETRY_AFTER)
            ticket = Ticket(
                hash=hash_of(secret),
                tenant_id=caller.tenant_id,
                key_id=caller.key_id,
                scope=scope,
                sandbox_id=sandbox_id,
                port=port,
                expires_at=func.clock_timestamp() + ttl,
            )
            await tickets.add(ticket)
        return IssuedTicket(secret, ticket.expires_at)

    async def find(self, secret: str) -> TicketCaller:
        """Find who holds the ticket; it counts as a request of its key's."""
        return await self._authenticator.authenticate_ticket(secret)
