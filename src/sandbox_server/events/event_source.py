import json
from dataclasses import dataclass
from typing import Any

from sandbox_client.models import EventRead, TimelineEntry
from sandbox_server.db.models import Event
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.log.event_repository import (
    EVERY_EVENT,
    EventFilter,
    EventLog,
    EventLogRepository,
)
from sandbox_server.log.source import Item, Page

_TOLD_APART = frozenset({"sandbox_id", "type", "cause", "actor", "reason"})


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """What happens to all of a tenant's sandboxes; or to one, until it has ended."""

    tenant_id: str
    sandbox_id: str | None = None
    wanted: EventFilter = EVERY_EVENT

    @property
    def topic(self) -> str:
        if self.sandbox_id is None:
            return f"tenant/{self.tenant_id}"
        return f"sandbox/{self.sandbox_id}"

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        async with without_transaction(sessions) as session:
            log = await EventLogRepository(session).read(
                self.tenant_id, sandbox_id=self.sandbox_id, after=after, limit=limit
            )
        gap = find_gap(log, after=after)
        if gap is not None:
            # From there on all is told, as to one who reads on.
            return Page(items=[gap], position=gap.id, more=True)
        more = len(log.rows) == limit
        return Page(
            items=[Item(row.seq, _encode(row)) for row in log.rows if self.wanted.matches(row)],
            position=log.rows[-1].seq if more else max(log.counted, after),
            more=more,
            over=not more and self.sandbox_id is not None and _has_ended(log),
        )

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        async with without_transaction(sessions) as session:
            return await EventLogRepository(session).find_tail(
                self.tenant_id, sandbox_id=self.sandbox_id, wanted=self.wanted, count=count
            )


def tell_event(row: Event) -> EventRead:
    return EventRead(**_what_happened(row), sandbox_id=row.sandbox_id)


def tell_moment(row: Event) -> TimelineEntry:
    return TimelineEntry(**_what_happened(row))


def find_gap(log: EventLog, *, after: int) -> Item | None:
    """Find out whether something is missing before what comes after that number.

    It was removed since it was too old; or the number was never given here, as when the database is a restored one.
    """
    is_known = after <= log.counted
    if is_known and (after >= log.removed_seq or _is_younger(log)):
        return None
    gap = {"type": "gap", "after": after, "oldest": log.removed_seq + 1}
    return Item(log.removed_seq, json.dumps(gap).encode())


def _is_younger(log: EventLog) -> bool:
    """Tell whether the sandbox was made after all that was removed, which then was about others."""
    if log.created_at is None or log.removed_at is None:
        return False
    return log.created_at > log.removed_at


def _has_ended(log: EventLog) -> bool:
    is_removed = log.created_at is None and log.counted > 0
    return log.ended_at is not None or is_removed


def _what_happened(row: Event) -> dict[str, Any]:
    told = {name: row.data.get(name) for name in ("cause", "actor", "reason")}
    data = {name: value for name, value in row.data.items() if name not in _TOLD_APART}
    return {"seq": row.seq, "type": row.type, "at": row.created_at, **told, "data": data}


def _encode(row: Event) -> bytes:
    return tell_event(row).model_dump_json().encode()
