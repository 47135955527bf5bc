"""Pieces of output before and after they are stored.

A row costs more than its content, so that single bytes are not kept by the million.
"""

from dataclasses import dataclass, field
from typing import Any

from sandbox_server.commands.rate_limits import WRITE_COST
from sandbox_server.log.records import RecordType

ROW_COST = 256


@dataclass(slots=True, eq=False)
class Piece:
    """A record that is not yet stored; `order` is its position among the records of all streams."""

    type: RecordType
    order: int
    offset: int = 0
    content: bytearray = field(default_factory=bytearray)
    data: dict[str, Any] = field(default_factory=dict)
    room: int = 0
    in_head: bool = True
    is_charged: bool = False
    """Its cost was already taken from the allowance."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Changes to the command's row that are stored with it."""

    @property
    def end(self) -> int:
        return self.offset + len(self.content)

    @property
    def cost(self) -> int:
        return ROW_COST + len(self.content)

    @property
    def charge(self) -> int:
        """Cost of writing it, to be taken from the allowance."""
        return 0 if self.in_head or self.is_charged else WRITE_COST + len(self.content)


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row of a stream's tail."""

    seq: int
    offset: int
    end: int
    is_gap: bool

    @property
    def cost(self) -> int:
        return ROW_COST + self.size

    @property
    def size(self) -> int:
        return 0 if self.is_gap else self.end - self.offset


@dataclass(frozen=True, slots=True)
class Evicted:
    """Rows to remove from a tail. The last of them becomes the gap."""

    rows: tuple[KeptRow, ...]

    @property
    def gap(self) -> KeptRow:
        return KeptRow(self.rows[-1].seq, self.rows[0].offset, self.rows[-1].end, is_gap=True)

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)
