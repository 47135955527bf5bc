"""What of a command's output is kept: of each stream the beginning and the end.

    ┌────────────┬─────────────┬────────────┐
    │    head    │     gap     │    tail    │     each half of the bound
    └────────────┴─────────────┴────────────┘
                  falls out of the tail, in the table and before it gets there

A row costs more than it holds, so that single bytes are not kept by the million.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandbox_server.streams.records import RecordType

LARGEST_PIECE = 64 * 1024
ROW_COST = 256
SMALLEST_BOUND = 256 * 1024
TOO_MUCH = "There was more output than is kept."

# Of UTF-8: how long a character is that begins with this byte, and what may follow in it.
_LENGTHS = {
    **dict.fromkeys(range(0xC2, 0xE0), 2),
    **dict.fromkeys(range(0xE0, 0xF0), 3),
    **dict.fromkeys(range(0xF0, 0xF5), 4),
}
_CONTINUATIONS = range(0x80, 0xC0)


@dataclass(slots=True, eq=False)
class Piece:
    """A record that is not stored yet; `order` is its place among those of all streams."""

    type: RecordType
    order: int
    offset: int = 0
    content: bytearray = field(default_factory=bytearray)
    data: dict[str, Any] = field(default_factory=dict)
    room: int = 0
    in_head: bool = True
    changes: dict[str, Any] = field(default_factory=dict)
    """What becomes of the command's row with it."""

    @property
    def end(self) -> int:
        return self.offset + len(self.content)

    @property
    def cost(self) -> int:
        return ROW_COST + len(self.content)


@dataclass(frozen=True, slots=True)
class Kept:
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
class Fallen:
    """Rows of a tail that are to go; the last of them becomes the gap where they all were."""

    rows: tuple[Kept, ...]

    @property
    def gap(self) -> Kept:
        return Kept(self.rows[-1].seq, self.rows[0].offset, self.rows[-1].end, is_gap=True)

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)


class Bounded:
    """One stream: what waits to be stored, and which rows of its tail are."""

    def __init__(self, type_: RecordType, *, bound: int) -> None:
        self.type = type_
        self.told = 0
        """How far rows tell of it, be it that they tell of a gap."""
        self.stored = 0
        """How many of its bytes are in rows."""
        self.weight = 0
        self._received = 0
        self._head_left = self._most = max(bound, SMALLEST_BOUND) // 2
        self._head_waiting: deque[Piece] = deque()
        self._tail_waiting: deque[Piece] = deque()
        self._tail_weight = 0
        self._tail: deque[Kept] = deque()
        self._tail_cost = 0

    @property
    def first(self) -> Piece | None:
        """The piece that has waited longest."""
        waiting = self._head_waiting or self._tail_waiting
        return waiting[0] if waiting else None

    def restore(self, rows: Iterable[Kept]) -> None:
        """Go on after what is stored of it, in order."""
        for row in rows:
            self.stored += row.size
            self.told = self._received = row.end
            if not row.is_gap and not self._tail and row.cost <= self._head_left:
                self._head_left -= row.cost
            else:
                self._head_left = 0
                self._keep(row)

    def open(self, order: int) -> Piece:
        """Begin another piece; what the one before has of an unfinished character goes over to it."""
        return self.put_back(self.take_unfinished(), order)

    def put_back(self, rest: bytes, order: int) -> Piece:
        """Begin a piece with bytes that were taken off the end."""
        in_head = self._head_left > 2 * ROW_COST
        self._head_left -= ROW_COST if in_head else self._head_left
        room = min(LARGEST_PIECE, self._head_left) if in_head else LARGEST_PIECE
        piece = Piece(self.type, order, self._received - len(rest), room=room, in_head=in_head)
        (self._head_waiting if in_head else self._tail_waiting).append(piece)
        self._weigh(piece, ROW_COST)
        self._extend(piece, rest)
        return piece

    def receive(self, piece: Piece, content: bytes) -> None:
        """Add to the piece that was opened last, which has room for it."""
        self._received += len(content)
        self._extend(piece, content)
        # There may be a gap to be told of before the first.
        while self._tail_weight > self._most - ROW_COST and len(self._tail_waiting) > 1:
            dropped = self._tail_waiting.popleft()
            self._weigh(dropped, -dropped.cost)

    def take(self) -> Piece:
        """Take what has waited longest."""
        piece = (self._head_waiting or self._tail_waiting).popleft()
        self._weigh(piece, -piece.cost)
        return piece

    def take_unfinished(self) -> bytes:
        """Take a character off the end that is not all there yet."""
        waiting = self._tail_waiting or self._head_waiting
        size = unfinished(waiting[-1].content) if waiting else 0
        if not size:
            return b""
        last = waiting[-1]
        rest = bytes(last.content[-size:])
        del last.content[-size:]
        self._weigh(last, -size)
        if not last.content:
            waiting.pop()
            self._weigh(last, -ROW_COST)
        return rest

    def fall(self, coming: int) -> Fallen | None:
        """Tell which rows have to go so that there is room for others that cost so much."""
        over = self._tail_cost + coming - self._most
        if over <= 0:
            return None
        over += ROW_COST  # of the gap
        fallen: list[Kept] = []
        for row in self._tail:
            # Two gaps in a row are one.
            if over <= 0 and not row.is_gap:
                break
            fallen.append(row)
            over -= row.cost
        return Fallen(tuple(fallen)) if any(not row.is_gap for row in fallen) else None

    def settle(self, rows: Iterable[tuple[Kept, bool]], fallen: Fallen | None) -> None:
        """Note what is stored from now on, each with whether it is in the head, and what is not any more."""
        if fallen is not None:
            for _ in fallen.rows:
                self._tail_cost -= self._tail.popleft().cost
            self._tail.appendleft(fallen.gap)
            self._tail_cost += fallen.gap.cost
            self.stored -= fallen.size
        for row, in_head in rows:
            self.stored += row.size
            self.told = row.end
            if not in_head:
                self._keep(row)

    def _keep(self, row: Kept) -> None:
        self._tail.append(row)
        self._tail_cost += row.cost

    def _extend(self, piece: Piece, content: bytes) -> None:
        piece.content += content
        piece.room -= len(content)
        self._weigh(piece, len(content))
        if piece.in_head:
            self._head_left -= len(content)

    def _weigh(self, piece: Piece, change: int) -> None:
        self.weight += change
        if not piece.in_head:
            self._tail_weight += change


def unfinished(content: bytes | bytearray) -> int:
    """Count the bytes at the end that begin a character of UTF-8 and do not end it."""
    for back in range(1, min(3, len(content)) + 1):
        byte = content[-back]
        if byte not in _CONTINUATIONS:
            return back if _LENGTHS.get(byte, 1) > back else 0
    return 0
