from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, any_, bindparam, column, func, select, true
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningInsert

from sandbox_server.db.models import TABLES, Event, Stream
from sandbox_server.domain.events import SandboxEvent
from sandbox_server.log.event_repository import EVERY_EVENT, EventFilter
from sandbox_server.metrics.instruments import EVENTS

# The channel for `{id}/{who changed it}` when a sandbox's row has changed.
SANDBOX_CHANNEL = "sandbox_changed"

# The channel for the topics (see log/source.py) of logs that have grown, separated by spaces.
LOG_CHANNEL = "log_grew"


class EventRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def append(self, tenant_id: str, *events: SandboxEvent, by: str = "") -> None:
        """Keep the events, numbered, and tell whoever waits for their sandboxes, once the transaction has committed.

        Last in a transaction, which holds the tenant's counter until it ends. `by` is who knows already.
        """
        if events:
            told = [event.model_dump(mode="json") for event in events]
            for one in told:
                EVENTS.labels(one["type"], one["cause"]).inc()
            await self._session.execute(
                _APPEND, {"tenant_id": tenant_id, "count": len(told), "told": told, "by": f"/{by}"}
            )

    async def count(self, tenant_ids: Collection[str]) -> Mapping[str, int]:
        """Tell how far the logs of these tenants have been counted."""
        rows = await self._session.execute(_COUNT, {"tenant_ids": list(tenant_ids)})
        return {tenant_id: next_seq - 1 for tenant_id, next_seq in rows}

    async def list_page(
        self,
        tenant_id: str,
        *,
        sandbox_id: str | None = None,
        wanted: EventFilter = EVERY_EVENT,
        after: int = 0,
        limit: int,
    ) -> Sequence[Event]:
        """List what happened after the event of that number, oldest first."""
        query = select(Event).where(
            Event.tenant_id == tenant_id, Event.seq > after, *wanted.conditions()
        )
        if sandbox_id is not None:
            query = query.where(Event.sandbox_id == sandbox_id)
        return (await self._session.scalars(query.order_by(Event.seq).limit(limit))).all()


_COUNT = select(Stream.tenant_id, Stream.next_seq).where(
    Stream.tenant_id == any_(bindparam("tenant_ids", type_=ARRAY(Text)))
)


def _append() -> ReturningInsert[Any]:
    """Take numbers for all events and insert them, in one statement that is built once."""
    tenant_id = bindparam("tenant_id", type_=Text)
    count = bindparam("count", type_=BigInteger)
    taking = insert(Stream).values(tenant_id=tenant_id, next_seq=1 + count)
    taking = taking.on_conflict_do_update(
        index_elements=[Stream.tenant_id], set_={"next_seq": Stream.next_seq + count}
    )
    taken = taking.returning((Stream.next_seq - count).label("first")).cte("taken")
    told = (
        func.jsonb_array_elements(bindparam("told", type_=JSONB))
        .table_valued(column("data", JSONB), with_ordinality="number", name="told")
        .render_derived()
    )
    rows = select(
        tenant_id,
        taken.c.first + told.c.number - 1,
        told.c.data["sandbox_id"].astext,
        told.c.data["type"].astext,
        told.c.data,
    ).select_from(taken.join(told, true()))
    columns = ["tenant_id", "seq", "sandbox_id", "type", "data"]
    table = TABLES["events"]
    kept = insert(table).from_select(columns, rows)
    said = table.c.sandbox_id + bindparam("by", type_=Text)
    grown = func.concat("tenant/", table.c.tenant_id, " sandbox/", table.c.sandbox_id)
    return kept.returning(func.pg_notify(SANDBOX_CHANNEL, said), func.pg_notify(LOG_CHANNEL, grown))


_APPEND = _append()
