from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox_server.db.session import Sessions


@dataclass(frozen=True, slots=True)
class Item:
    """One event of a stream: JSON with its `type` inside, under its number in the tenant's log."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a stream, read in one go."""

    items: Sequence[Item]
    position: int
    """As far as was read; beyond the last item where others' were passed over."""
    more: bool
    """There is more to read at once."""
    over: bool = False
    """Nothing will ever follow."""


class Source(Protocol):
    """Where one stream is read from. Equal ones are the same stream, and read once for all who follow it."""

    @property
    def tenant_id(self) -> str:
        """Whose log it is; that one's counter tells that there may be more where nobody said so."""

    @property
    def topic(self) -> str:
        """What is said on the channel when there is more: `tenant/ID`, `sandbox/ID` or `command/ID`; or several."""

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        """Read what comes after that number; of what is no longer kept, a `gap` comes first."""

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        """Find after which number the last so many items come."""
