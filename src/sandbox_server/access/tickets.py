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

MAX_PER_TENANT = 10_000
_RETRY_AFTER = timedelta(seconds=30)


@dataclass(frozen=True)
class IssuedTicket:
    """A new ticket's secret, which is not stored, and when it expires."""

    secret: str = field(repr=False)
    expires_at: datetime


class Tickets:
    """Short-lived, restricted credentials for URLs: browsers cannot send headers with a stream."""

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
        """Create a ticket with at most the scope of the caller's key; it ends with the key."""
        if isinstance(caller, TicketCaller):
            raise TicketRefused("A ticket cannot be used to create tickets.")
        caller.require(scope.needed)
        secret = new_ticket()
        async with self._sessions.begin() as session:
            if sandbox_id is not None:
                await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)
            tickets = TicketRepository(session)
            if await tickets.count(caller.tenant_id, limit=MAX_PER_TENANT) >= MAX_PER_TENANT:
                raise TooManyTickets(MAX_PER_TENANT, retry_after=_RETRY_AFTER)
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
        """Find the ticket's caller; counts against the rate limit of the ticket's key."""
        return await self._authenticator.authenticate_ticket(secret)
