"""A progress bar on stderr, shown on terminals when a transfer takes a while."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Self

from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.tables import width_of
from sandbox_client.console.escape import escape_controls

_SHOWN_AFTER_S = 0.5
_AGAIN_AFTER_S = 0.1
_REWRITE = "\r\033[K"
_BAR = 24
_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1000


class TransferProgress:
    def __init__(
        self,
        output: Output,
        what: str,
        total: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_shown = sys.stderr.isatty() and not (output.is_quiet or output.as_json)
        self._what = escape_controls(what)
        self._total = total
        self._clock = clock
        self._done = 0
        self._begun = clock()
        self._next = self._begun + _SHOWN_AFTER_S
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            _write(_REWRITE)

    def advance(self, size: int) -> None:
        self._done += size
        now = self._clock()
        if self._is_shown and now >= self._next:
            self._next = now + _AGAIN_AFTER_S
            self._is_drawn = True
            line = format_progress(self._what, self._done, self._total, now - self._begun)
            _write(_REWRITE + line)

    def counted(self, file: BinaryIO) -> "Counted":
        """Wrap a file to count the bytes read and written."""
        return Counted(file, self.advance)


class Counted:
    def __init__(self, file: BinaryIO, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def read(self, size: int, /) -> bytes:
        part = self._file.read(size)
        self._count(len(part))
        return part

    def write(self, content: bytes) -> int:
        self._count(len(content))
        return self._file.write(content)


def format_progress(what: str, done: int, total: int | None, elapsed: float) -> str:
    """Format one line of progress; the name is truncated to fit the terminal."""
    rate = f"{format_size(done / elapsed if elapsed else 0)}/s"
    if not total:
        figures = f"{format_size(done)}  {rate}"
    else:
        share = min(1.0, done / total)
        bar = "█" * round(share * _BAR)
        figures = (
            f"{bar:░<{_BAR}} {share:4.0%}  {format_size(done)} of {format_size(total)}  {rate}"
        )
    room = shutil.get_terminal_size().columns - width_of(figures) - 3
    while what and width_of(what) > room:
        what = what[:-1]
    return f"{what}  {figures}"


def format_size(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < _THOUSAND:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _THOUSAND
    return f"{size:.1f} {_UNITS[-1]}"


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
