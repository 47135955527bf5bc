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

_SEPARATE_FIELDS = frozenset({"sandbox_id", "task_id", "type", "cause", "actor", "reason"})


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """Events of all of a tenant's sandboxes; or of one, until it has ended."""

    tenant_id: str
    sandbox_id: str | None = None
    event_filter: EventFilter = EVERY_EVENT

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
            # The next read continues after the gap.
            return Page(items=[gap], position=gap.id, more=True)
        more = len(log.rows) == limit
        return Page(
            items=[
                Item(row.seq, _encode(row)) for row in log.rows if self.event_filter.matches(row)
            ],
            position=log.rows[-1].seq if more else max(log.last_seq, after),
            more=more,
            over=not more and self.sandbox_id is not None and _has_ended(log),
        )

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        async with without_transaction(sessions) as session:
            return await EventLogRepository(session).find_tail(
                self.tenant_id,
                sandbox_id=self.sandbox_id,
                event_filter=self.event_filter,
                count=count,
            )


def view_event(row: Event) -> EventRead:
    return EventRead(**_common_fields(row), sandbox_id=row.sandbox_id, task_id=row.task_id)


def view_timeline_entry(row: Event) -> TimelineEntry:
    return TimelineEntry(**_common_fields(row))


def find_gap(log: EventLog, *, after: int) -> Item | None:
    """Find a gap directly after the position `after`.

    Either older events were removed, or the position was never issued, for example after the database was restored.
    """
    is_known = after <= log.last_seq
    if is_known and (after >= log.removed_seq or _created_after_removal(log)):
        return None
    gap = {"type": "gap", "after": after, "oldest": log.removed_seq + 1}
    return Item(log.removed_seq, json.dumps(gap).encode())


def _created_after_removal(log: EventLog) -> bool:
    """Return whether the sandbox was created after the removed events, which then belong to others."""
    if log.created_at is None or log.removed_at is None:
        return False
    return log.created_at > log.removed_at


def _has_ended(log: EventLog) -> bool:
    is_removed = log.created_at is None and log.last_seq > 0
    return log.ended_at is not None or is_removed


def _common_fields(row: Event) -> dict[str, Any]:
    fields = {name: row.data.get(name) for name in ("cause", "actor", "reason")}
    data = {name: value for name, value in row.data.items() if name not in _SEPARATE_FIELDS}
    return {"seq": row.seq, "type": row.type, "at": row.created_at, **fields, "data": data}


def _encode(row: Event) -> bytes:
    return view_event(row).model_dump_json().encode()
