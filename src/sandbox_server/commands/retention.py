"""What of a command's output is kept: of each stream the beginning and the end.

    ┌────────────┬─────────────┬────────────┐
    │    head    │     gap     │    tail    │     each half of the bound
    └────────────┴─────────────┴────────────┘
                  falls out of the tail, in the table and before it gets there

The head is written as it comes. The tail is a ring: once its allowance is used up it is held back in memory, so that a
flood is dropped before the database and not by it.

A row costs more than it holds, so that single bytes are not kept by the million.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandbox_server.commands.allowance import WRITE_COST, Allowance, Clock
from sandbox_server.log.records import RecordType

LARGEST_PIECE = 64 * 1024
ROW_COST = 256
SMALLEST_BOUND = 256 * 1024
TOO_MUCH = "There was more output than is kept."

QUIET_S = 0.5
"""An output that was held back and has been silent for so long gets its last bytes written."""

_SHORT_END = 16 * 1024  # what of it is written then if it has used up its credit
_SHORTEST_WAIT_S = 0.05

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
    is_paid: bool = False
    """The allowance was charged for it already."""
    changes: dict[str, Any] = field(default_factory=dict)
    """What becomes of the command's row with it."""

    @property
    def end(self) -> int:
        return self.offset + len(self.content)

    @property
    def cost(self) -> int:
        return ROW_COST + len(self.content)

    @property
    def price(self) -> int:
        """What the allowance is charged for writing it."""
        return 0 if self.in_head or self.is_paid else WRITE_COST + len(self.content)


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

    def __init__(
        self, type_: RecordType, *, bound: int, clock: Clock, most_held: int | None = None
    ) -> None:
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
        self._most_held = self._most if most_held is None else min(most_held, self._most)
        self._allowance = Allowance(self._most, clock=clock)
        self._clock = clock
        self._last_received_at = clock()
        self._is_released = False

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

    def put_back(self, rest: bytes, order: int, *, is_paid: bool = False) -> Piece:
        """Begin a piece with bytes that were taken off the end."""
        in_head = self._head_left > 2 * ROW_COST
        self._head_left -= ROW_COST if in_head else self._head_left
        room = min(LARGEST_PIECE, self._head_left) if in_head else LARGEST_PIECE
        offset = self._received - len(rest)
        piece = Piece(self.type, order, offset, room=room, in_head=in_head, is_paid=is_paid)
        (self._head_waiting if in_head else self._tail_waiting).append(piece)
        self._weigh(piece, ROW_COST)
        self._extend(piece, rest)
        return piece

    def receive(self, piece: Piece, content: bytes) -> None:
        """Add to the piece that was opened last, which has room for it."""
        self._received += len(content)
        self._last_received_at = self._clock()
        self._extend(piece, content)
        # There may be a gap to be told of before the first.
        most = self._most_held if self.is_held else self._most
        self._drop_oldest(most - ROW_COST)

    @property
    def is_held(self) -> bool:
        """Output waits that may not be written yet."""
        return self.first is not None and not self.may_take

    @property
    def may_take(self) -> bool:
        """What has waited longest may be written now."""
        first = self.first
        if first is None:
            return False
        return self._is_released or not first.price or self._allowance.covers(first.price)

    def refill(self, rate: float) -> float:
        """Earn allowance at that rate, and return how much; after a silence get the last bytes written even without."""
        earned = self._allowance.refill(rate)
        if self.is_held and self._clock() - self._last_received_at >= QUIET_S:
            self.pay_ahead()
        return earned

    def pay_ahead(self) -> None:
        """Let what is held back be written on credit: all of it, or its last bytes where there is a debt already."""
        if not self.is_held:
            return
        if self._allowance.is_in_debt:
            if not self._allowance.has_credit:
                return
            self._cut_to(_SHORT_END)
        for piece in self._tail_waiting:
            self._allowance.spend(piece.price)
            piece.is_paid = True

    def release(self) -> None:
        """Hold nothing back from now on: this is the end."""
        self._is_released = True

    def seconds_held(self) -> float:
        """Tell how long to wait before asking again whether what waits may be written."""
        first = self.first
        if first is None or self.may_take:
            return 0.0
        return min(max(self._allowance.seconds_until(first.price), _SHORTEST_WAIT_S), QUIET_S)

    def shed(self, most: int) -> None:
        """Drop the oldest of what is held back, down to so much."""
        if self.is_held:
            self._drop_oldest(most)

    def take(self) -> Piece:
        """Take what has waited longest."""
        piece = (self._head_waiting or self._tail_waiting).popleft()
        self._weigh(piece, -piece.cost)
        self._allowance.spend(piece.price)
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

    def _drop_oldest(self, most: int) -> None:
        while self._tail_weight > most and len(self._tail_waiting) > 1:
            dropped = self._tail_waiting.popleft()
            self._weigh(dropped, -dropped.cost)

    def _cut_to(self, size: int) -> None:
        """Drop all that waits but about the last `size` bytes, cut where a character begins."""
        held = sum(len(piece.content) for piece in self._tail_waiting)
        while held - len(self._tail_waiting[0].content) >= size:
            dropped = self._tail_waiting.popleft()
            held -= len(dropped.content)
            self._weigh(dropped, -dropped.cost)
        first = self._tail_waiting[0]
        excess = max(0, held - size)
        while excess and excess < len(first.content) and first.content[excess] in _CONTINUATIONS:
            excess += 1
        del first.content[:excess]
        first.offset += excess
        self._weigh(first, -excess)

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
