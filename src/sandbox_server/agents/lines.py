"""What an agent said, line by line, out of the pieces in which its output is kept.

Each line has a number of its own, twice the offset at which it ends, and each place where some are missing has one more than that. So
whoever has read up to a number goes on at an offset, whatever pieces the output was stored in.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.domain.agents import read_line
from sandbox_server.log.records import Record, RecordType

LONGEST_LINE = 512 * 1024
"""What is longer is told in parts: no agent's program says as much at once."""


@dataclass(frozen=True, slots=True)
class Line:
    end: int
    content: bytes
    at: datetime

    @property
    def number(self) -> int:
        return 2 * self.end


@dataclass(frozen=True, slots=True)
class Missing:
    """Lines that are not kept: of so many bytes, or of nobody knows how many."""

    end: int
    size: int | None
    at: datetime

    @property
    def number(self) -> int:
        return 2 * self.end + 1


class Lines:
    """Puts lines together for one who has read up to a number."""

    def __init__(self, *, after: int) -> None:
        self.start = after // 2
        """Where the line begins that comes next."""
        self._is_told = after % 2 == 1  # that something is missing before it
        self._rest = bytearray()
        self._rest_start = self.start
        self._is_broken = False
        self._is_known = True

    def add(self, record: Record) -> Iterator[Line | Missing]:
        """Give what is whole by now."""
        if record.type is RecordType.GAP:
            self._break(record)
            return
        new = record.content[max(0, self._end - record.offset) :]
        self._rest += new
        while (newline := self._rest.find(b"\n")) >= 0:
            yield from self._take(newline + 1, record.at)
        if len(self._rest) > LONGEST_LINE:
            yield from self._take(len(self._rest), record.at)

    def finish(self, at: datetime) -> Iterator[Line | Missing]:
        """Give what is left of an output that has ended."""
        if self._is_broken or self._rest:
            yield from self._take(len(self._rest), at)

    @property
    def _end(self) -> int:
        return self._rest_start + len(self._rest)

    def _break(self, gap: Record) -> None:
        size = gap.data.get("size")
        if size is None and self._is_told and self._end == self.start:
            return
        self._rest_start = self._end if size is None else max(self._end, gap.offset + size)
        self._rest.clear()
        self._is_broken = True
        self._is_known = self._is_known and size is not None

    def _take(self, length: int, at: datetime) -> Iterator[Line | Missing]:
        content = bytes(self._rest[:length])
        end = self._rest_start + length
        if self._is_broken:
            is_whole = _is_message(content)
            lost_until = self._rest_start if is_whole else end
            yield Missing(lost_until, lost_until - self.start if self._is_known else None, at)
            if is_whole:
                yield Line(end, content, at)
        else:
            yield Line(end, content, at)
        del self._rest[:length]
        self.start = self._rest_start = end
        self._is_broken, self._is_known, self._is_told = False, True, False


def _is_message(content: bytes) -> bool:
    """Tell a line from the end of one whose beginning is missing."""
    return "type" in read_line(content)


def lines_of(records: Iterable[Record], lines: Lines) -> Iterator[Line | Missing]:
    for record in records:
        yield from lines.add(record)
