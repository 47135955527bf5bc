"""Somebody who sits before a terminal, and has a program run in it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

_PATIENCE_S = 60


class TerminalUser:
    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._terminal, theirs = pty.openpty()
        self.resize(80, 24)
        self.program = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", **(env or {})},
        )
        os.close(theirs)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self._terminal)

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def see(self, text: str) -> str:
        """Look until this is shown; gives all that was shown until then, which is forgotten."""
        deadline = time.monotonic() + _PATIENCE_S
        while text.encode() not in self.seen:
            assert self._look(deadline), (
                f"{text!r} was not shown:\n{self.seen.decode(errors='replace')}"
            )
        seen, _, self.seen = self.seen.partition(text.encode())
        return seen.decode(errors="replace") + text

    def end(self) -> int:
        """Look until the program ends by itself; tells its exit code."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._look(deadline):
            pass
        return self.program.wait(_PATIENCE_S)

    def _look(self, deadline: float) -> bool:
        readable, _, _ = select.select(
            [self._terminal], [], [], max(0, deadline - time.monotonic())
        )
        content = b""
        with suppress(OSError):  # nobody has it open any more
            content = os.read(self._terminal, 65536) if readable else b""
        self.seen += content
        return bool(content)
