from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, any_, bindparam, case, column, func, select, true
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningInsert

from sandbox_server.db.models import TABLES, Event, Stream
from sandbox_server.domain.events import LoggedEvent
from sandbox_server.log.event_repository import EVERY_EVENT, EventFilter
from sandbox_server.metrics.instruments import EVENTS

# Notification `{id}/{process}`: a sandbox's row has changed.
SANDBOX_CHANNEL = "sandbox_changed"

# Notification with topics (see log/source.py), separated by spaces: these logs have new records.
LOG_CHANNEL = "log_grew"


class EventRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def append(self, tenant_id: str, *events: LoggedEvent, by: str = "") -> None:
        """Append events and notify waiting requests and streams when the transaction commits.

        Call it last in a transaction: it locks the tenant's counter until the end. `by` names the process that needs no notification.
        """
        if events:
            payloads = [event.model_dump(mode="json") for event in events]
            for payload in payloads:
                EVENTS.labels(payload["type"], payload["cause"]).inc()
            await self._session.execute(
                _APPEND,
                {
                    "tenant_id": tenant_id,
                    "count": len(payloads),
                    "payloads": payloads,
                    "by": f"/{by}",
                },
            )

    async def count(self, tenant_ids: Collection[str]) -> Mapping[str, int]:
        """Return the last number of each of these tenants' logs."""
        rows = await self._session.execute(_COUNT, {"tenant_ids": list(tenant_ids)})
        return {tenant_id: next_seq - 1 for tenant_id, next_seq in rows}

    async def list_page(
        self,
        tenant_id: str,
        *,
        sandbox_id: str | None = None,
        task_id: str | None = None,
        event_filter: EventFilter = EVERY_EVENT,
        after: int = 0,
        limit: int,
    ) -> Sequence[Event]:
        """List events after a number, oldest first."""
        query = select(Event).where(
            Event.tenant_id == tenant_id, Event.seq > after, *event_filter.conditions()
        )
        if sandbox_id is not None:
            query = query.where(Event.sandbox_id == sandbox_id)
        if task_id is not None:
            query = query.where(Event.task_id == task_id)
        return (await self._session.scalars(query.order_by(Event.seq).limit(limit))).all()


_COUNT = select(Stream.tenant_id, Stream.next_seq).where(
    Stream.tenant_id == any_(bindparam("tenant_ids", type_=ARRAY(Text)))
)


def _append() -> ReturningInsert[Any]:
    """Issue numbers and insert all events in one statement, built once."""
    tenant_id = bindparam("tenant_id", type_=Text)
    count = bindparam("count", type_=BigInteger)
    counter = insert(Stream).values(tenant_id=tenant_id, next_seq=1 + count)
    counter = counter.on_conflict_do_update(
        index_elements=[Stream.tenant_id], set_={"next_seq": Stream.next_seq + count}
    )
    taken = counter.returning((Stream.next_seq - count).label("first")).cte("taken")
    payloads = (
        func.jsonb_array_elements(bindparam("payloads", type_=JSONB))
        .table_valued(column("data", JSONB), with_ordinality="number", name="payloads")
        .render_derived()
    )
    rows = select(
        tenant_id,
        taken.c.first + payloads.c.number - 1,
        payloads.c.data["sandbox_id"].astext,
        payloads.c.data["task_id"].astext,
        payloads.c.data["type"].astext,
        payloads.c.data,
    ).select_from(taken.join(payloads, true()))
    columns = ["tenant_id", "seq", "sandbox_id", "task_id", "type", "data"]
    table = TABLES["events"]
    inserted = insert(table).from_select(columns, rows)
    changed = table.c.sandbox_id + bindparam("by", type_=Text)
    topics = func.concat_ws(
        " ",
        "tenant/" + table.c.tenant_id,
        "sandbox/" + table.c.sandbox_id,
        "task/" + table.c.task_id,
    )
    of_sandbox = table.c.sandbox_id.is_not(None)
    return inserted.returning(
        case((of_sandbox, func.pg_notify(SANDBOX_CHANNEL, changed))),
        func.pg_notify(LOG_CHANNEL, topics),
    )


_APPEND = _append()
