from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox_server.db.session import Sessions


@dataclass(frozen=True, slots=True)
class Item:
    """One event of a stream: JSON with a `type`, under its number in the tenant's log."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a stream."""

    items: Sequence[Item]
    position: int
    """Number up to which the stream was read; beyond the last item if records of others were skipped."""
    more: bool
    """There is more to read now."""
    over: bool = False
    """The stream has ended."""
    topic: str | None = None
    """Topics to follow from now on, if they are not those of the source."""


class Source(Protocol):
    """Where a stream is read from. Equal sources are the same stream, and are read once for all followers."""

    @property
    def tenant_id(self) -> str:
        """Owner of the log. Its counter shows new records even without a notification."""

    @property
    def topic(self) -> str:
        """Topics of notifications about new records: `tenant/ID`, `sandbox/ID`, `task/ID` or `command/ID`, separated by spaces."""

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        """Read items after a number. If some were removed, the first item is a `gap`."""

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        """Find the number after which the last `count` items come."""
