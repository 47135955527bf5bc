from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, Text, bindparam, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from sandbox_server.db.models import Event, Sandbox, Stream

_SEPARATOR = "."


@dataclass(frozen=True, kw_only=True)
class EventFilter:
    """Selects events by type and cause. The type `sandbox.` matches all types with this prefix."""

    types: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()

    def matches(self, event: Event) -> bool:
        prefix = event.type.partition(_SEPARATOR)[0] + _SEPARATOR
        return (not self.types or not self.types.isdisjoint({event.type, prefix})) and (
            not self.causes or event.data.get("cause") in self.causes
        )

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        if self.types:
            prefix = func.split_part(Event.type, _SEPARATOR, 1) + _SEPARATOR
            yield or_(Event.type.in_(self.types), prefix.in_(self.types))
        if self.causes:
            yield Event.data["cause"].astext.in_(self.causes)


EVERY_EVENT = EventFilter()


@dataclass(frozen=True, kw_only=True)
class EventLog:
    """Part of a log, and its overall state."""

    rows: Sequence[Event] = ()
    last_seq: int = 0
    """Last issued number at the time of the read: all events up to it can be read."""
    removed_seq: int = 0
    removed_at: datetime | None = None
    """Number and time of the last removed event."""
    created_at: datetime | None = None
    ended_at: datetime | None = None
    """Of the selected sandbox. Both are None if its row was removed."""


class EventLogRepository:
    """Reads the event log for streams."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def read(
        self, tenant_id: str, *, sandbox_id: str | None = None, after: int, limit: int
    ) -> EventLog:
        """Read events after a number, in one snapshot."""
        parameters = {"tenant_id": tenant_id, "after": after, "limit": limit}
        if sandbox_id is None:
            found = (await self._session.execute(_READ, parameters)).all()
        else:
            of_sandbox = parameters | {"sandbox_id": sandbox_id}
            found = (await self._session.execute(_READ_OF_SANDBOX, of_sandbox)).all()
        if not found:
            return EventLog()  # nothing has happened yet
        known = found[0]._asdict()
        return EventLog(
            rows=[row[0] for row in found if row[0] is not None],
            **{name: known[name] for name in known if name in _KNOWN},
        )

    async def find_tail(
        self,
        tenant_id: str,
        *,
        sandbox_id: str | None = None,
        event_filter: EventFilter = EVERY_EVENT,
        count: int,
    ) -> int:
        """Find the number after which the last `count` events come."""
        own = select(Event.seq).where(Event.tenant_id == tenant_id, *event_filter.conditions())
        if sandbox_id is not None:
            own = own.where(Event.sandbox_id == sandbox_id)
        before = await self._session.scalar(own.order_by(Event.seq.desc()).offset(count).limit(1))
        removed = select(Stream.removed_seq).where(Stream.tenant_id == tenant_id)
        return before or await self._session.scalar(removed) or 0


_KNOWN = frozenset(EventLog.__dataclass_fields__) - {"rows"}


def _read(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Select events joined to the state of their log, which is one row even without events."""
    rows = (
        select(Event)
        .where(
            Event.tenant_id == bindparam("tenant_id", type_=Text),
            Event.seq > bindparam("after", type_=BigInteger),
            *conditions,
        )
        .order_by(Event.seq)
        .limit(bindparam("limit", type_=BigInteger))
        .subquery()
    )
    found = aliased(Event, rows)
    known = (Stream.next_seq - 1).label("last_seq"), Stream.removed_seq, Stream.removed_at
    return (
        select(found, *known)
        .select_from(Stream)
        .outerjoin(found, true())
        .where(Stream.tenant_id == bindparam("tenant_id", type_=Text))
        .order_by(found.seq)
    )


_sandbox_id = bindparam("sandbox_id", type_=Text)
_READ = _read()
_READ_OF_SANDBOX = (
    _read(Event.sandbox_id == _sandbox_id)
    .outerjoin(Sandbox, (Sandbox.id == _sandbox_id) & (Sandbox.tenant_id == Stream.tenant_id))
    .add_columns(Sandbox.created_at, Sandbox.ended_at)
)
