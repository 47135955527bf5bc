"""A command's log as it grows: received, taken to be stored, and known to be."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_server.commands.allowance import TRICKLE, Clock
from sandbox_server.commands.retention import ROW_COST, TOO_MUCH, Bounded, Fallen, Kept, Piece
from sandbox_server.log.records import RecordType

OUTPUTS = (RecordType.STDOUT, RecordType.STDERR)


@dataclass(frozen=True)
class StoredRecord:
    """What the log has to know of a record that is stored already."""

    seq: int
    type: RecordType
    offset: int
    length: int
    data: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """Records to be stored together; it stays the same until it is known whether it was."""

    last_seq: int
    """The number of the last record before them."""
    records: Sequence[Piece]
    fallen: Mapping[RecordType, Fallen]
    sizes: Mapping[str, int]
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        return sum(record.cost for record in self.records)


class CommandLog:
    """What one command wrote and what happened to it; of its streams, what is worth storing.

    `most_held` limits how far a live view may lag behind a flood, at the cost of what is kept of the flood's end.
    """

    def __init__(
        self,
        *,
        bound: int,
        last_seq: int = 0,
        most_held: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.last_seq = last_seq
        self._streams = {
            type_: Bounded(type_, bound=bound, most_held=most_held, clock=clock)
            for type_ in OUTPUTS
        }
        self.earned = 0.0
        """Allowance that its streams were given so far, beyond their bursts."""
        self._notes: deque[Piece] = deque()
        self._order = 0
        self._open: Piece | None = None
        self._has_ended = False

    @property
    def weight(self) -> int:
        """What waits costs so much memory."""
        notes = len(self._notes) * ROW_COST
        return notes + sum(stream.weight for stream in self._streams.values())

    @property
    def is_held(self) -> bool:
        """Some of it floods, and is held back for now."""
        return any(stream.is_held for stream in self._streams.values())

    def seconds_held(self) -> float:
        """Tell when to try `take` again where it gave nothing; 0 where only new output changes that."""
        waits = [stream.seconds_held() for stream in self._streams.values() if stream.is_held]
        return min(waits, default=0.0)

    def release(self) -> None:
        """Hold nothing back from now on."""
        for stream in self._streams.values():
            stream.release()

    def shed(self, most: int) -> None:
        """Free memory: drop the oldest of what is held back, down to so much."""
        for stream in self._streams.values():
            stream.shed(most // len(self._streams))

    def restore(self, records: Iterable[StoredRecord]) -> None:
        """Go on after what is stored."""
        rows: dict[RecordType, list[Kept]] = {type_: [] for type_ in OUTPUTS}
        for record in records:
            self.last_seq = record.seq
            is_gap = record.type is RecordType.GAP
            stream = record.data.get("stream") if is_gap else record.type
            if stream in rows:
                length = record.data["size"] if is_gap else record.length
                kept = Kept(record.seq, record.offset, record.offset + length, is_gap)
                rows[RecordType(stream)].append(kept)
        for type_, kept_rows in rows.items():
            self._streams[type_].restore(kept_rows)

    def receive(self, type_: RecordType, content: bytes) -> None:
        """Add what a stream wrote."""
        stream = self._streams[type_]
        start = 0
        while start < len(content):
            piece = self._open
            if piece is None or piece.type is not type_ or piece.room <= 0:
                piece = self._open = stream.open(self._next())
            part = content[start : start + piece.room]
            stream.receive(piece, part)
            start += len(part)

    def note(self, type_: RecordType, data: Mapping[str, Any], **changes: Any) -> None:
        """Add something that happened, with what becomes of the command's row; an `exit` is the last of all."""
        # What is held back comes before it.
        for stream in self._streams.values():
            stream.pay_ahead()
        self._notes.append(Piece(type_, self._next(), data=dict(data), changes=changes))
        self._open = None
        self._has_ended = type_ is RecordType.EXIT
        if self._has_ended:
            self.release()

    def take(self, *, most: int, rate: float = TRICKLE) -> Batch | None:
        """Take what has waited longest and may be written, up to about so much; an unfinished character waits for its end.

        Outputs that are held back earn allowance at `rate`, in bytes per second.
        """
        for stream in self._streams.values():
            self.earned += stream.refill(rate)
        held = {}
        if not self._has_ended:
            ready = ((type_, each) for type_, each in self._streams.items() if each.may_take)
            held = {type_: each.take_unfinished() for type_, each in ready}
        records = self._take_records(most)
        self._hold_back(held)
        if not records:
            return None
        fallen = {}
        for type_, stream in self._streams.items():
            its = [each for each in records if _stream_of(each) is type_ and not each.in_head]
            if (falling := stream.fall(sum(each.cost for each in its))) is not None:
                fallen[type_] = falling
        return Batch(
            last_seq=self.last_seq,
            records=records,
            fallen=fallen,
            sizes=self._sizes(records, fallen),
            changes={name: value for each in records for name, value in each.changes.items()},
        )

    def settle(self, batch: Batch, last_seq: int) -> None:
        """Note that the batch is stored, and under which number its last record is."""
        self.last_seq = last_seq
        numbered = list(enumerate(batch.records, start=last_seq + 1 - len(batch.records)))
        for type_, stream in self._streams.items():
            rows = [
                (_kept(each, seq), each.in_head)
                for seq, each in numbered
                if _stream_of(each) is type_
            ]
            stream.settle(rows, batch.fallen.get(type_))

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _take_records(self, most: int) -> list[Piece]:
        records: list[Piece] = []
        told = {type_: stream.told for type_, stream in self._streams.items()}
        cost = 0
        while cost < most and (piece := self._take_first()) is not None:
            cost += piece.cost
            if piece.type in told:
                if piece.offset > told[piece.type]:
                    records.append(_gap(piece, told[piece.type]))
                told[piece.type] = piece.end
            records.append(piece)
            if piece is self._open:
                self._open = None
        if self._open is not None and self._open.is_paid:
            self._open = None
        return records

    def _take_first(self) -> Piece | None:
        waiting = [(each.first, each.take) for each in self._streams.values() if each.may_take]
        if self._notes:
            waiting.append((self._notes[0], self._notes.popleft))
        there = [(first.order, take) for first, take in waiting if first is not None]
        return min(there)[1]() if there else None

    def _hold_back(self, held: Mapping[RecordType, bytes]) -> None:
        for type_, rest in held.items():
            if rest:
                self._open = None
                # Paid, since it waits for its other bytes and not for an allowance.
                self._streams[type_].put_back(rest, self._next(), is_paid=True)

    def _sizes(
        self, records: Sequence[Piece], fallen: Mapping[RecordType, Fallen]
    ) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for type_, stream in self._streams.items():
            its = [each for each in records if each.type is type_]
            size = its[-1].end if its else stream.told
            kept = stream.stored + sum(len(each.content) for each in its)
            if type_ in fallen:
                kept -= fallen[type_].size
            sizes |= {f"{type_}_size": size, f"{type_}_cut": size - kept}
        return sizes


def _stream_of(piece: Piece) -> RecordType | None:
    if piece.type in OUTPUTS:
        return piece.type
    named = piece.data.get("stream") if piece.type is RecordType.GAP else None
    return None if named is None else RecordType(named)


def _gap(before: Piece, told: int) -> Piece:
    data = {"stream": before.type.value, "size": before.offset - told, "reason": TOO_MUCH}
    return Piece(RecordType.GAP, before.order, told, data=data, in_head=before.in_head)


def _kept(piece: Piece, seq: int) -> Kept:
    if piece.type is RecordType.GAP:
        return Kept(seq, piece.offset, piece.offset + piece.data["size"], is_gap=True)
    return Kept(seq, piece.offset, piece.end, is_gap=False)
