from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import ApiKey, Ticket

_now = func.clock_timestamp()
_with_key = (
    select(Ticket, ApiKey)
    .join(ApiKey, ApiKey.id == Ticket.key_id)
    .where(Ticket.expires_at > _now, ApiKey.revoked_at.is_(None))
)


@dataclass(frozen=True)
class KeyedTicket:
    """A ticket and the key that created it."""

    ticket: Ticket
    key: ApiKey


class TicketRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_valid(self, secret_hash: bytes) -> KeyedTicket | None:
        """Find the ticket whose secret has this hash, unless it has expired or its key is revoked."""
        found = await self._session.execute(_with_key.where(Ticket.hash == secret_hash))
        row = found.one_or_none()
        return None if row is None else KeyedTicket(row[0], row[1])

    async def list_valid_for_port(
        self, secret_hashes: Sequence[bytes], *, sandbox_id: str, port: int
    ) -> Sequence[KeyedTicket]:
        """List the tickets with these hashes that are valid for the port."""
        found = await self._session.execute(
            _with_key.where(
                Ticket.hash.in_(secret_hashes),
                Ticket.sandbox_id == sandbox_id,
                Ticket.port == port,
            )
        )
        return [KeyedTicket(row[0], row[1]) for row in found]

    async def count(self, tenant_id: str, *, limit: int) -> int:
        """Count a tenant's valid tickets, up to `limit`."""
        valid = (
            select(Ticket.hash)
            .where(Ticket.tenant_id == tenant_id, Ticket.expires_at > func.statement_timestamp())
            .limit(limit)
            .subquery()
        )
        count: int = await self._session.scalar(select(func.count()).select_from(valid)) or 0
        return count

    async def add(self, ticket: Ticket) -> None:
        self._session.add(ticket)
        await self._session.flush()
        await self._session.refresh(ticket, ["expires_at"])  # set by the database's clock
