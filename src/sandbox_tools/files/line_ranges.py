import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from sandbox_tools.files.text_encoding import Encoding
from sandbox_tools.toolkit.threads import CheckCancelled
from sandbox_tools.toolkit.truncation import MAX_CHARACTERS, truncate_line

_CHUNK_CHARACTERS = 65_536
_MAX_COUNTED_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class LineRange:
    """A range of lines; `following` is None where a large file was not counted."""

    skipped: int
    lines: list[str]
    following: int | None

    @property
    def last(self) -> int:
        return self.skipped + len(self.lines)

    @property
    def total(self) -> int | None:
        return None if self.following is None else self.last + self.following


def read_lines(
    file: BinaryIO, encoding: Encoding, *, first: int, limit: int, check_cancelled: CheckCancelled
) -> LineRange:
    """Read lines from `first` on, up to `limit` lines and the maximum size of a result."""
    is_large = os.fstat(file.fileno()).st_size > _MAX_COUNTED_BYTES
    lines = _lines(file, encoding, check_cancelled)
    skipped = _count(islice(lines, first - 1))
    taken, room, following = list[str](), MAX_CHARACTERS, 0
    for line in islice(lines, limit):
        room -= len(line)
        if room < 0 and taken:
            following = 1
            break
        taken.append(line)
    if is_large and (following or next(lines, None) is not None):
        return LineRange(skipped=skipped, lines=taken, following=None)
    return LineRange(skipped=skipped, lines=taken, following=following + _count(lines))


def _lines(file: BinaryIO, encoding: Encoding, check_cancelled: CheckCancelled) -> Iterator[str]:
    """Yield lines without their ends; only the beginning of very long lines is held in memory."""
    file.seek(len(encoding.bom))
    text = io.TextIOWrapper(file, encoding.codec, errors="replace", newline="\n")
    while line := text.readline(_CHUNK_CHARACTERS):
        check_cancelled()
        beginning, length = line.removesuffix("\n").removesuffix("\r"), None
        if len(line) == _CHUNK_CHARACTERS and not line.endswith("\n"):
            length = len(line) + _skip_rest_of_line(text, check_cancelled)
        yield truncate_line(beginning, length=length)


def _skip_rest_of_line(text: io.TextIOWrapper, check_cancelled: CheckCancelled) -> int:
    length = 0
    while piece := text.readline(_CHUNK_CHARACTERS):
        check_cancelled()
        length += len(piece)
        if piece.endswith("\n"):
            return length - 1
    return length


def _count(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)
