import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_server.browsers.records.entries import EntryKind, LogEntry, unpack_entries
from sandbox_server.browsers.records.messages import CommandLog, unpack_messages
from sandbox_server.browsers.records.store import RecordKind, RecordStore, StoredRecord
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.errors import InvalidRequest

_PARTS = 16


@dataclass(frozen=True)
class EntryPosition:
    """The position of an entry: its part, and its number there."""

    part: str = ""
    number: int = -1

    @classmethod
    def parse(cls, text: str) -> "EntryPosition":
        part, _, number = text.partition("/")
        if not (part.isalnum() and number.isascii() and number.isdigit()):
            raise InvalidRequest("Invalid cursor; use `next_cursor` of the previous page.")
        return cls(part, int(number))

    def __str__(self) -> str:
        return f"{self.part}/{self.number}"


class SessionLogs:
    """Reads the logs of sessions, also of those that have ended."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    async def list_messages(self, row: BrowserSession) -> list[dict[str, Any]]:
        """List the CDP commands of drivers with their responses, and the events that they received."""
        parts = await self._store.list_after(row.id, RecordKind.MESSAGES)
        return await asyncio.to_thread(_read_messages, row.id, row.pages, parts)

    async def list_entries(
        self,
        row: BrowserSession,
        *,
        kind: EntryKind | None,
        after: EntryPosition,
        limit: int,
    ) -> list[tuple[EntryPosition, LogEntry]]:
        """List what pages wrote to their consoles, requested and failed at, oldest first."""
        found: list[tuple[EntryPosition, LogEntry]] = []
        start = after.part
        while len(found) < limit:
            parts = await self._store.list_after(
                row.id, RecordKind.ENTRIES, start=start, limit=_PARTS
            )
            for part in parts:
                for number, entry in enumerate(unpack_entries(part.content)):
                    is_new = part.id != after.part or number > after.number
                    if is_new and kind in {None, entry.kind}:
                        found.append((EntryPosition(part.id, number), entry))
            if len(parts) < _PARTS:
                break
            start = f"{parts[-1].id}~"  # behind this part
        return found[:limit]


def _read_messages(
    session_id: str, pages: Mapping[str, int], parts: Sequence[StoredRecord]
) -> list[dict[str, Any]]:
    log = CommandLog(session_id, pages)
    return log.read(each for part in parts for each in unpack_messages(part.content))
