from collections.abc import Sequence

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Event, Stream
from sandbox_server.domain.events import SandboxEvent


class EventRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def append(self, tenant_id: str, *events: SandboxEvent) -> None:
        """Keep the events, numbered; last in a transaction, which holds the tenant's counter until it ends."""
        first = await self._take_numbers(tenant_id, len(events))
        rows = [
            {
                "tenant_id": tenant_id,
                "seq": seq,
                "sandbox_id": event.sandbox_id,
                "type": event.model_dump()["type"],
                "data": event.model_dump(mode="json"),
            }
            for seq, event in enumerate(events, first)
        ]
        if rows:
            await self._session.execute(insert(Event), rows)

    async def list_page(
        self, tenant_id: str, *, sandbox_id: str | None = None, after: int = 0, limit: int
    ) -> Sequence[Event]:
        """List what happened after the event of that number, oldest first."""
        query = select(Event).where(Event.tenant_id == tenant_id, Event.seq > after)
        if sandbox_id is not None:
            query = query.where(Event.sandbox_id == sandbox_id)
        return (await self._session.scalars(query.order_by(Event.seq).limit(limit))).all()

    async def _take_numbers(self, tenant_id: str, count: int) -> int:
        taken = upsert(Stream).values(tenant_id=tenant_id, next_seq=1 + count)
        taken = taken.on_conflict_do_update(
            index_elements=[Stream.tenant_id], set_={"next_seq": Stream.next_seq + count}
        )
        next_seq = (await self._session.execute(taken.returning(Stream.next_seq))).scalar_one()
        return next_seq - count
