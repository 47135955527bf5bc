import os
import tempfile
from collections.abc import Callable
from pathlib import Path


class OutputFiles:
    """Files with the output of commands; only the newest are kept."""

    def __init__(self, directory: Path, *, kept: int = 20) -> None:
        self._directory = directory
        self._kept = kept

    def open(self) -> tuple[int, Path]:
        """Create a file and remove the oldest ones."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, path = tempfile.mkstemp(
            prefix="command-", suffix=".txt", dir=self._directory, text=False
        )
        for old in self._oldest_first()[: -self._kept]:
            old.unlink(missing_ok=True)
        return descriptor, Path(path)

    def _oldest_first(self) -> list[Path]:
        return sorted(self._directory.glob("command-*.txt"), key=_changed)


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


class CommandOutput:
    """Output of a command: beginning and end in memory, all of it in a file once it is long."""

    def __init__(
        self,
        open_file: Callable[[], tuple[int, Path]],
        *,
        head: int = 10_000,
        tail: int = 20_000,
        max_file_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._open_file = open_file
        self._head_size = head
        self._tail_size = tail
        self._max_file_bytes = max_file_bytes
        self._head = bytearray()
        self._end = bytearray()
        self._descriptor: int | None = None
        self._in_file = 0
        self._spill_error: str | None = None
        self.file: Path | None = None
        self.size = 0

    def add(self, data: bytes) -> None:
        if self.size + len(data) > self._head_size + self._tail_size:
            self.spill()
        if self._descriptor is not None:
            self._write(data)
        self.size += len(data)
        room = max(0, self._head_size - len(self._head))
        self._head += data[:room]
        self._end += data[room:]
        if len(self._end) > 2 * self._tail_size:
            del self._end[: -self._tail_size]

    def spill(self) -> Path | None:
        """Write past and future output to a file, if one can be created."""
        if self.file is None and self._spill_error is None:
            try:
                self._descriptor, self.file = self._open_file()
            except OSError as error:
                self._spill_error = error.strerror
            self._write(bytes(self._head + self._end))
        return self.file

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def last_line(self, limit: int = 200) -> str:
        """Return the last line that is not blank, for progress reports."""
        seen = (self._end or self._head)[-4 * limit :].decode(errors="replace")
        lines = [line for line in seen.replace("\r", "\n").split("\n") if line.strip()]
        return lines[-1].strip()[-limit:] if lines else ""

    def text(self) -> str:
        """Return all of it, or its beginning and end with the number of bytes omitted."""
        head, tail = self._head, self._end[-self._tail_size :]
        cut = self.size - len(head) - len(tail)
        if cut <= 0:
            return (head + tail).decode(errors="replace")
        between = f"\n[… {cut} bytes truncated; {self._describe_file()} …]\n"
        return f"{_decode_piece(head)}{between}{_decode_piece(tail)}"

    def _describe_file(self) -> str:
        if self.file is None:
            return f"the rest could not be stored: {self._spill_error}"
        if self._in_file < self.size:
            return f"the first {self._in_file} bytes: {self.file}"
        return f"full output: {self.file}"

    def _write(self, data: bytes) -> None:
        view = memoryview(data)[: max(0, self._max_file_bytes - self._in_file)]
        while view and self._descriptor is not None:
            try:
                written = os.write(self._descriptor, view)
            except OSError:  # disk full: keep what was written
                self.close()
                return
            self._in_file += written
            view = view[written:]


def _decode_piece(piece: bytes | bytearray) -> str:
    """Decode a part that may begin or end within a character."""
    return piece.decode(errors="replace").strip("\ufffd")
