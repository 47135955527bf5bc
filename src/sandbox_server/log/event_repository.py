from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, Text, bindparam, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from sandbox_server.db.models import Event, Sandbox, Stream

_EVERYTHING_OF = "."


@dataclass(frozen=True, kw_only=True)
class EventFilter:
    """Which events are told: those of any of these types, and of any of these causes. `sandbox.` is all whose type begins so."""

    types: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()

    def matches(self, event: Event) -> bool:
        begins = event.type.partition(_EVERYTHING_OF)[0] + _EVERYTHING_OF
        return (not self.types or not self.types.isdisjoint({event.type, begins})) and (
            not self.causes or event.data.get("cause") in self.causes
        )

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        if self.types:
            begins = func.split_part(Event.type, _EVERYTHING_OF, 1) + _EVERYTHING_OF
            yield or_(Event.type.in_(self.types), begins.in_(self.types))
        if self.causes:
            yield Event.data["cause"].astext.in_(self.causes)


EVERY_EVENT = EventFilter()


@dataclass(frozen=True, kw_only=True)
class EventLog:
    """A part of a log, and what is known of all of it."""

    rows: Sequence[Event] = ()
    counted: int = 0
    """The last number that was given when this was read: whatever has it or one before is there to be read."""
    removed_seq: int = 0
    removed_at: datetime | None = None
    """Of the last event that is not kept any more."""
    created_at: datetime | None = None
    ended_at: datetime | None = None
    """Of the sandbox that was asked about; neither is known of one that has been removed."""


class EventLogRepository:
    """Reads logs for who follows them."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def read(
        self, tenant_id: str, *, sandbox_id: str | None = None, after: int, limit: int
    ) -> EventLog:
        """Read some of what comes after that number, all as it was at one moment."""
        asked = {"tenant_id": tenant_id, "after": after, "limit": limit}
        if sandbox_id is None:
            found = (await self._session.execute(_READ, asked)).all()
        else:
            about = asked | {"sandbox_id": sandbox_id}
            found = (await self._session.execute(_READ_OF_SANDBOX, about)).all()
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
        wanted: EventFilter = EVERY_EVENT,
        count: int,
    ) -> int:
        """Find after which number the last so many events come."""
        mine = select(Event.seq).where(Event.tenant_id == tenant_id, *wanted.conditions())
        if sandbox_id is not None:
            mine = mine.where(Event.sandbox_id == sandbox_id)
        before = await self._session.scalar(mine.order_by(Event.seq.desc()).offset(count).limit(1))
        removed = select(Stream.removed_seq).where(Stream.tenant_id == tenant_id)
        return before or await self._session.scalar(removed) or 0


_KNOWN = frozenset(EventLog.__dataclass_fields__) - {"rows"}


def _read(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Select events beside what is known of their log, of which there is a row even if there is no event."""
    some = (
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
    found = aliased(Event, some)
    known = (Stream.next_seq - 1).label("counted"), Stream.removed_seq, Stream.removed_at
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
