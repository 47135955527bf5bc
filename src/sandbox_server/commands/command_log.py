"""A command's log in memory: received, taken for a write, acknowledged as stored."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_server.commands.output_pieces import Evicted, KeptRow, Piece
from sandbox_server.commands.rate_limits import TRICKLE, Clock
from sandbox_server.commands.retention import LIMIT_REASON, BoundedStream
from sandbox_server.log.records import RecordType

OUTPUTS = (RecordType.STDOUT, RecordType.STDERR)


@dataclass(frozen=True)
class StoredRecord:
    """A record that is already stored, without its content."""

    seq: int
    type: RecordType
    offset: int
    length: int
    data: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """Records that are written together. A batch stays the same until its outcome is known."""

    last_seq: int
    """Sequence number of the last record before the batch."""
    records: Sequence[Piece]
    evicted: Mapping[RecordType, Evicted]
    sizes: Mapping[str, int]
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        return sum(record.cost for record in self.records)


class CommandLog:
    """Output and events of one command; of its streams, only what is retained.

    `max_held` limits how far a live view may lag behind a flood. The cost is that less of the end of the flood is kept.
    """

    def __init__(
        self,
        *,
        bound: int,
        last_seq: int = 0,
        max_held: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.last_seq = last_seq
        self._streams = {
            type_: BoundedStream(type_, bound=bound, max_held=max_held, clock=clock)
            for type_ in OUTPUTS
        }
        self.earned = 0.0
        """Allowance earned by the streams so far, beyond their bursts."""
        self._notes: deque[Piece] = deque()
        self._order = 0
        self._open: Piece | None = None
        self._has_ended = False

    @property
    def buffered_bytes(self) -> int:
        """Memory used by records that are not yet stored."""
        notes = sum(note.cost for note in self._notes)
        return notes + sum(stream.buffered_bytes for stream in self._streams.values())

    @property
    def is_held(self) -> bool:
        """Whether some output exceeds its allowance and is held for now."""
        return any(stream.is_held for stream in self._streams.values())

    def seconds_held(self) -> float:
        """Return when to retry `take` after it returned nothing; 0 if only new output changes that."""
        waits = [stream.seconds_held() for stream in self._streams.values() if stream.is_held]
        return min(waits, default=0.0)

    def release(self) -> None:
        """Stop holding output."""
        for stream in self._streams.values():
            stream.release()

    def shed(self, max_bytes: int) -> None:
        """Free memory: drop the oldest held output until at most `max_bytes` bytes are left."""
        for stream in self._streams.values():
            stream.shed(max_bytes // len(self._streams))

    def restore(self, records: Iterable[StoredRecord]) -> None:
        """Continue after the stored records."""
        rows: dict[RecordType, list[KeptRow]] = {type_: [] for type_ in OUTPUTS}
        for record in records:
            self.last_seq = record.seq
            is_gap = record.type is RecordType.GAP
            stream = record.data.get("stream") if is_gap else record.type
            if stream in rows:
                length = record.data["size"] if is_gap else record.length
                kept = KeptRow(record.seq, record.offset, record.offset + length, is_gap)
                rows[RecordType(stream)].append(kept)
        for type_, kept_rows in rows.items():
            self._streams[type_].restore(kept_rows)

    def receive(self, type_: RecordType, content: bytes) -> None:
        """Append output of a stream."""
        stream = self._streams[type_]
        start = 0
        while start < len(content):
            piece = self._open
            if piece is None or piece.type is not type_ or piece.room <= 0:
                piece = self._open = stream.open(self._next())
            part = content[start : start + piece.room]
            stream.receive(piece, part)
            start += len(part)

    def note(
        self, type_: RecordType, data: Mapping[str, Any], *, content: bytes = b"", **changes: Any
    ) -> None:
        """Append an event, with the changes to the command's row. `exit` is the last record."""
        # Held output precedes the event.
        for stream in self._streams.values():
            stream.charge_pending()
        note = Piece(
            type_, self._next(), content=bytearray(content), data=dict(data), changes=changes
        )
        self._notes.append(note)
        self._open = None
        self._has_ended = type_ is RecordType.EXIT
        if self._has_ended:
            self.release()

    def take(self, *, max_bytes: int, rate: float = TRICKLE) -> Batch | None:
        """Take the oldest records that may be written, up to about `max_bytes` bytes. An incomplete character stays behind.

        Held outputs earn allowance at `rate` bytes per second.
        """
        for stream in self._streams.values():
            self.earned += stream.refill(rate)
        unfinished_bytes = {}
        if not self._has_ended:
            ready = ((type_, each) for type_, each in self._streams.items() if each.may_take)
            unfinished_bytes = {type_: each.take_unfinished() for type_, each in ready}
        records = self._take_records(max_bytes)
        self._put_back(unfinished_bytes)
        if not records:
            return None
        evicted = {}
        for type_, stream in self._streams.items():
            own = [each for each in records if _stream_of(each) is type_ and not each.in_head]
            if (evicted_rows := stream.evict(sum(each.cost for each in own))) is not None:
                evicted[type_] = evicted_rows
        return Batch(
            last_seq=self.last_seq,
            records=records,
            evicted=evicted,
            sizes=self._sizes(records, evicted),
            changes={name: value for each in records for name, value in each.changes.items()},
        )

    def ack(self, batch: Batch, last_seq: int) -> None:
        """Mark the batch as stored, its last record under `last_seq`."""
        self.last_seq = last_seq
        numbered = list(enumerate(batch.records, start=last_seq + 1 - len(batch.records)))
        for type_, stream in self._streams.items():
            rows = [
                (_kept(each, seq), each.in_head)
                for seq, each in numbered
                if _stream_of(each) is type_
            ]
            stream.ack(rows, batch.evicted.get(type_))

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _take_records(self, max_bytes: int) -> list[Piece]:
        records: list[Piece] = []
        recorded_until = {type_: stream.recorded_until for type_, stream in self._streams.items()}
        cost = 0
        while cost < max_bytes and (piece := self._take_first()) is not None:
            cost += piece.cost
            if piece.type in recorded_until:
                if piece.offset > recorded_until[piece.type]:
                    records.append(_gap(piece, recorded_until[piece.type]))
                recorded_until[piece.type] = piece.end
            records.append(piece)
            if piece is self._open:
                self._open = None
        if self._open is not None and self._open.is_charged:
            self._open = None
        return records

    def _take_first(self) -> Piece | None:
        waiting = [(each.first, each.take) for each in self._streams.values() if each.may_take]
        if self._notes:
            waiting.append((self._notes[0], self._notes.popleft))
        ready = [(first.order, take) for first, take in waiting if first is not None]
        return min(ready)[1]() if ready else None

    def _put_back(self, unfinished_bytes: Mapping[RecordType, bytes]) -> None:
        for type_, rest in unfinished_bytes.items():
            if rest:
                self._open = None
                # Charged already: it waits for its other bytes, not for an allowance.
                self._streams[type_].put_back(rest, self._next(), is_charged=True)

    def _sizes(
        self, records: Sequence[Piece], evicted: Mapping[RecordType, Evicted]
    ) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for type_, stream in self._streams.items():
            own = [each for each in records if each.type is type_]
            size = own[-1].end if own else stream.recorded_until
            kept = stream.stored + sum(len(each.content) for each in own)
            if type_ in evicted:
                kept -= evicted[type_].size
            sizes |= {f"{type_}_size": size, f"{type_}_cut": size - kept}
        return sizes


def _stream_of(piece: Piece) -> RecordType | None:
    if piece.type in OUTPUTS:
        return piece.type
    named = piece.data.get("stream") if piece.type is RecordType.GAP else None
    return None if named is None else RecordType(named)


def _gap(before: Piece, recorded_until: int) -> Piece:
    data = {
        "stream": before.type.value,
        "size": before.offset - recorded_until,
        "reason": LIMIT_REASON,
    }
    return Piece(RecordType.GAP, before.order, recorded_until, data=data, in_head=before.in_head)


def _kept(piece: Piece, seq: int) -> KeptRow:
    if piece.type is RecordType.GAP:
        return KeptRow(seq, piece.offset, piece.offset + piece.data["size"], is_gap=True)
    return KeptRow(seq, piece.offset, piece.end, is_gap=False)
