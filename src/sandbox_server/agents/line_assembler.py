"""Splits an agent's output, which is stored in records of any size, into lines.

The number of a line is twice the offset of its end; the number of a gap is one more. A reader can therefore resume at an
offset from the number of its last event, however the output is divided into records.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.domain.agents import read_line
from sandbox_server.log.records import Record, RecordType

LONGEST_LINE = 512 * 1024
"""Longer lines are split; no agent CLI writes such lines."""


@dataclass(frozen=True, slots=True)
class Line:
    end: int
    content: bytes
    at: datetime

    @property
    def number(self) -> int:
        return 2 * self.end


@dataclass(frozen=True, slots=True)
class Gap:
    """Lost output of `size` bytes, or of unknown size."""

    end: int
    size: int | None
    at: datetime

    @property
    def number(self) -> int:
        return 2 * self.end + 1


class LineAssembler:
    """Assembles lines from records, for a reader at a position."""

    def __init__(self, *, after: int) -> None:
        self.start = after // 2
        """Offset of the next line."""
        self._follows_gap = (
            after % 2 == 1
        )  # the reader has already got a gap event at this position
        self._rest = bytearray()
        self._rest_start = self.start
        self._has_gap = False
        self._gap_size_known = True

    def add(self, record: Record) -> Iterator[Line | Gap]:
        """Yield the lines that are complete with this record."""
        if record.type is RecordType.GAP:
            self._add_gap(record)
            return
        new = record.content[max(0, self._end - record.offset) :]
        self._rest += new
        while (newline := self._rest.find(b"\n")) >= 0:
            yield from self._take(newline + 1, record.at)
        if len(self._rest) > LONGEST_LINE:
            yield from self._take(len(self._rest), record.at)

    def finish(self, at: datetime) -> Iterator[Line | Gap]:
        """Yield the last, unterminated line when the output has ended."""
        if self._has_gap or self._rest:
            yield from self._take(len(self._rest), at)

    @property
    def _end(self) -> int:
        return self._rest_start + len(self._rest)

    def _add_gap(self, gap: Record) -> None:
        size = gap.data.get("size")
        if size is None and self._follows_gap and self._end == self.start:
            return
        self._rest_start = self._end if size is None else max(self._end, gap.offset + size)
        self._rest.clear()
        self._has_gap = True
        self._gap_size_known = self._gap_size_known and size is not None

    def _take(self, length: int, at: datetime) -> Iterator[Line | Gap]:
        content = bytes(self._rest[:length])
        end = self._rest_start + length
        if self._has_gap:
            is_complete = _is_message(content)
            lost_until = self._rest_start if is_complete else end
            yield Gap(lost_until, lost_until - self.start if self._gap_size_known else None, at)
            if is_complete:
                yield Line(end, content, at)
        else:
            yield Line(end, content, at)
        del self._rest[:length]
        self.start = self._rest_start = end
        self._has_gap, self._gap_size_known, self._follows_gap = False, True, False


def _is_message(content: bytes) -> bool:
    """Return whether this is a complete message, unlike the end of a line whose beginning was lost."""
    return "type" in read_line(content)


def lines_of(records: Iterable[Record], lines: LineAssembler) -> Iterator[Line | Gap]:
    for record in records:
        yield from lines.add(record)
