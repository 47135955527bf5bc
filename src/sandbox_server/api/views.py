"""Rows as the API tells them."""

from typing import Any

from sandbox_client.models import EventRead, TimelineEntry
from sandbox_server.db.models import Event

_TOLD_APART = frozenset({"sandbox_id", "type", "cause", "actor", "reason"})


def view_event(row: Event) -> EventRead:
    return EventRead(
        **_what_happened(row),
        sandbox_id=row.sandbox_id,
        data={name: value for name, value in row.data.items() if name not in _TOLD_APART},
    )


def view_moment(row: Event) -> TimelineEntry:
    return TimelineEntry(**_what_happened(row))


def _what_happened(row: Event) -> dict[str, Any]:
    told = {name: row.data.get(name) for name in ("cause", "actor", "reason")}
    return {"seq": row.seq, "type": row.type, "at": row.created_at, **told}
