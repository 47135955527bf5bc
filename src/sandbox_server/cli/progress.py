import shutil
import sys
import time
from types import TracebackType
from typing import Self

from sandbox_server.templates.build_log import BuildLog

_CLEAR = "\r\x1b[2K"


class Progress:
    """Shows the progress of a build: on a terminal the steps and the last line, otherwise all output."""

    def __init__(self, name: str, backend: str) -> None:
        self._name = name
        self._backend = backend
        self._is_live = sys.stdout.isatty()
        self._began = time.monotonic()
        self._told = 0
        self._step: str | None = None

    def __enter__(self) -> Self:
        self._line(f"Building {self._name} at {self._backend}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            return
        self._line(
            "Stopped following; the build may still be running. Run the command again to follow it."
        )

    def show(self, log: BuildLog, *, step: str | None) -> None:
        """Show new progress."""
        if log.size < self._told:  # superseded by a newer build
            self._told = 0
        piece = log.read(self._told)
        self._told = piece.next_offset
        lines = [_printable(line) for line in piece.text.splitlines() if line.strip()]
        if not self._is_live:
            for line in lines:
                self._line(line)
        elif step is not None and step != self._step:
            self._step = step
            self._line(_printable(step))
        if self._is_live and lines:
            self._replace(lines[-1])

    def end(self, *, is_ready: bool, reason: str | None) -> None:
        took = f"after {time.monotonic() - self._began:.0f} s"
        if is_ready:
            self._line(f"{self._name} is ready at {self._backend} {took}.")
            return
        self._line(f"Building {self._name} failed {took}.")
        text = "\n".join(map(_printable, (reason or "Reason not recorded.").splitlines()))
        sys.stderr.write(f"{text}\n")

    def _line(self, text: str) -> None:
        sys.stdout.write(f"{_CLEAR if self._is_live else ''}{text}\n")
        sys.stdout.flush()

    def _replace(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stdout.write(f"{_CLEAR}{f'  {text}'[:width]}")
        sys.stdout.flush()


def _printable(text: str) -> str:
    """Remove terminal control sequences from the output of programs in a sandbox."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
