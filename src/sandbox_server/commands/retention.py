"""Retention of output: the beginning and the end of each stream.

    ┌────────────┬─────────────┬────────────┐
    │    head    │     gap     │    tail    │     each half of the bound
    └────────────┴─────────────┴────────────┘
                  evicted from the tail, in the table and before it is written

The head is written as it arrives. The tail is a ring buffer. Once its allowance is used up it is held in memory, so that
a flood is dropped before the database and not by it.
"""

from collections import deque
from collections.abc import Iterable

from sandbox_server.commands.output_pieces import ROW_COST, Evicted, KeptRow, Piece
from sandbox_server.commands.rate_limits import Clock, TokenBucket
from sandbox_server.log.records import RecordType

LARGEST_PIECE = 64 * 1024
SMALLEST_BOUND = 256 * 1024
LIMIT_REASON = "Output exceeds the retention limit."

QUIET_S = 0.5
"""The last bytes of a held output are written once it has been silent for so long."""

_CREDITED_TAIL = 16 * 1024  # written on credit while there is a debt
_MIN_WAIT_S = 0.05

# UTF-8: length of a character by its first byte, and the continuation bytes.
_LENGTHS = {
    **dict.fromkeys(range(0xC2, 0xE0), 2),
    **dict.fromkeys(range(0xE0, 0xF0), 3),
    **dict.fromkeys(range(0xF0, 0xF5), 4),
}
_CONTINUATIONS = range(0x80, 0xC0)


class BoundedStream:
    """One stream: pending pieces and stored rows of its tail."""

    def __init__(
        self, type_: RecordType, *, bound: int, clock: Clock, max_held: int | None = None
    ) -> None:
        self.type = type_
        self.recorded_until = 0
        """Offset up to which rows or gaps are recorded."""
        self.stored = 0
        """Number of bytes in rows."""
        self.buffered_bytes = 0
        self._received = 0
        self._head_left = self._most = max(bound, SMALLEST_BOUND) // 2
        self._pending_head: deque[Piece] = deque()
        self._pending_tail: deque[Piece] = deque()
        self._tail_buffered = 0
        self._tail: deque[KeptRow] = deque()
        self._tail_cost = 0
        self._max_held = self._most if max_held is None else min(max_held, self._most)
        self._allowance = TokenBucket(self._most, clock=clock)
        self._clock = clock
        self._last_received_at = clock()
        self._is_released = False

    @property
    def first(self) -> Piece | None:
        """The oldest pending piece."""
        waiting = self._pending_head or self._pending_tail
        return waiting[0] if waiting else None

    def restore(self, rows: Iterable[KeptRow]) -> None:
        """Continue after the stored rows, which are in order."""
        for row in rows:
            self.stored += row.size
            self.recorded_until = self._received = row.end
            if not row.is_gap and not self._tail and row.cost <= self._head_left:
                self._head_left -= row.cost
            else:
                self._head_left = 0
                self._keep(row)

    def open(self, order: int) -> Piece:
        """Begin another piece. Bytes of an incomplete character move to it."""
        return self.put_back(self.take_unfinished(), order)

    def put_back(self, rest: bytes, order: int, *, is_charged: bool = False) -> Piece:
        """Begin a piece with bytes that were taken off the end."""
        in_head = self._head_left > 2 * ROW_COST
        self._head_left -= ROW_COST if in_head else self._head_left
        room = min(LARGEST_PIECE, self._head_left) if in_head else LARGEST_PIECE
        offset = self._received - len(rest)
        piece = Piece(self.type, order, offset, room=room, in_head=in_head, is_charged=is_charged)
        (self._pending_head if in_head else self._pending_tail).append(piece)
        self._account(piece, ROW_COST)
        self._extend(piece, rest)
        return piece

    def receive(self, piece: Piece, content: bytes) -> None:
        """Append to the piece that was opened last, which has room."""
        self._received += len(content)
        self._last_received_at = self._clock()
        self._extend(piece, content)
        # A gap may have to be recorded before the first piece.
        max_bytes = self._max_held if self.is_held else self._most
        self._drop_oldest(max_bytes - ROW_COST)

    @property
    def is_held(self) -> bool:
        """Whether pending output may not be written yet."""
        return self.first is not None and not self.may_take

    @property
    def may_take(self) -> bool:
        """Whether the oldest piece may be written now."""
        first = self.first
        if first is None:
            return False
        return self._is_released or not first.charge or self._allowance.covers(first.charge)

    def refill(self, rate: float) -> float:
        """Earn allowance at `rate`, and return how much. After a silence, charge pending output on credit."""
        earned = self._allowance.refill(rate)
        if self.is_held and self._clock() - self._last_received_at >= QUIET_S:
            self.charge_pending()
        return earned

    def charge_pending(self) -> None:
        """Let held output be written on credit: all of it, or only its last bytes if there is a debt."""
        if not self.is_held:
            return
        if self._allowance.is_in_debt:
            if not self._allowance.has_credit:
                return
            self._cut_to(_CREDITED_TAIL)
        for piece in self._pending_tail:
            self._allowance.spend(piece.charge)
            piece.is_charged = True

    def release(self) -> None:
        """Stop holding output, because the command has ended."""
        self._is_released = True

    def seconds_held(self) -> float:
        """Return when to check again whether pending output may be written."""
        first = self.first
        if first is None or self.may_take:
            return 0.0
        return min(max(self._allowance.seconds_until(first.charge), _MIN_WAIT_S), QUIET_S)

    def shed(self, max_bytes: int) -> None:
        """Drop the oldest held output until at most `max_bytes` bytes are left."""
        if self.is_held:
            self._drop_oldest(max_bytes)

    def take(self) -> Piece:
        """Take the oldest piece."""
        piece = (self._pending_head or self._pending_tail).popleft()
        self._account(piece, -piece.cost)
        self._allowance.spend(piece.charge)
        return piece

    def take_unfinished(self) -> bytes:
        """Remove an incomplete character from the end, and return its bytes."""
        waiting = self._pending_tail or self._pending_head
        size = unfinished(waiting[-1].content) if waiting else 0
        if not size:
            return b""
        last = waiting[-1]
        rest = bytes(last.content[-size:])
        del last.content[-size:]
        self._account(last, -size)
        if not last.content:
            waiting.pop()
            self._account(last, -ROW_COST)
        return rest

    def evict(self, added: int) -> Evicted | None:
        """Select the rows to remove so that rows of the cost `added` fit."""
        over = self._tail_cost + added - self._most
        if over <= 0:
            return None
        over += ROW_COST  # for the gap
        evicted: list[KeptRow] = []
        for row in self._tail:
            # Adjacent gaps are merged.
            if over <= 0 and not row.is_gap:
                break
            evicted.append(row)
            over -= row.cost
        return Evicted(tuple(evicted)) if any(not row.is_gap for row in evicted) else None

    def ack(self, rows: Iterable[tuple[KeptRow, bool]], evicted: Evicted | None) -> None:
        """Mark rows as stored, each with whether it is in the head, and evicted rows as removed."""
        if evicted is not None:
            for _ in evicted.rows:
                self._tail_cost -= self._tail.popleft().cost
            self._tail.appendleft(evicted.gap)
            self._tail_cost += evicted.gap.cost
            self.stored -= evicted.size
        for row, in_head in rows:
            self.stored += row.size
            self.recorded_until = row.end
            if not in_head:
                self._keep(row)

    def _drop_oldest(self, max_bytes: int) -> None:
        while self._tail_buffered > max_bytes and len(self._pending_tail) > 1:
            dropped = self._pending_tail.popleft()
            self._account(dropped, -dropped.cost)

    def _cut_to(self, size: int) -> None:
        """Drop pending output except for about the last `size` bytes, from the beginning of a character."""
        pending = sum(len(piece.content) for piece in self._pending_tail)
        while pending - len(self._pending_tail[0].content) >= size:
            dropped = self._pending_tail.popleft()
            pending -= len(dropped.content)
            self._account(dropped, -dropped.cost)
        first = self._pending_tail[0]
        excess = max(0, pending - size)
        while excess and excess < len(first.content) and first.content[excess] in _CONTINUATIONS:
            excess += 1
        del first.content[:excess]
        first.offset += excess
        self._account(first, -excess)

    def _keep(self, row: KeptRow) -> None:
        self._tail.append(row)
        self._tail_cost += row.cost

    def _extend(self, piece: Piece, content: bytes) -> None:
        piece.content += content
        piece.room -= len(content)
        self._account(piece, len(content))
        if piece.in_head:
            self._head_left -= len(content)

    def _account(self, piece: Piece, change: int) -> None:
        self.buffered_bytes += change
        if not piece.in_head:
            self._tail_buffered += change


def unfinished(content: bytes | bytearray) -> int:
    """Count the bytes of an incomplete UTF-8 character at the end."""
    for back in range(1, min(3, len(content)) + 1):
        byte = content[-back]
        if byte not in _CONTINUATIONS:
            return back if _LENGTHS.get(byte, 1) > back else 0
    return 0
