import asyncio
import errno
import os
import struct
import tempfile
from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

MEMORY_BYTES = 1 << 20
DISK_BYTES = 1 << 30

_SEGMENT_BYTES = 16 << 20
_RECORD = struct.Struct("=BI")


class Stream(StrEnum):
    """The stream that output belongs to."""

    STDOUT = "stdout"
    STDERR = "stderr"
    PTY = "pty"


_STREAMS = tuple(Stream)


class Output(NamedTuple):
    stream: Stream
    data: bytes


class SpoolFull(Exception):
    """The reader is too slow: the limit of unread output is reached."""


class Spool:
    """Unread output of one reader: in memory first, beyond a limit in unlinked files."""

    def __init__(
        self, directory: Path, *, memory: int = MEMORY_BYTES, disk: int = DISK_BYTES
    ) -> None:
        self._directory = directory
        self._memory = memory
        self._disk = disk
        self._chunks: deque[Output] = deque()
        self._in_memory = 0
        self._segments: deque[_Segment] = deque()
        self._on_disk = 0
        self._ended = False
        self._error: Exception | None = None
        self._changed: asyncio.Future[None] | None = None

    def put(self, output: Output) -> None:
        """Add a piece of output; raises SpoolFull at the limit, as the reader's next get does."""
        size = len(output.data)
        if not self._segments and self._in_memory + size <= self._memory:
            self._chunks.append(output)
            self._in_memory += size
        else:
            try:
                self._spill(output)
            except (OSError, SpoolFull) as error:
                full = SpoolFull(f"the reader is too slow: {error}")
                self.end(full)
                raise full from error
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Mark the end of the output; with an error, unread output is dropped."""
        self._ended = True
        if error is not None:
            self._error = error
            self._clear()
        self._wake()

    async def get(self) -> Output | None:
        """Return the next piece, waiting for it; None at the end."""
        while True:
            if self._error is not None:
                raise self._error
            if self._chunks:
                output = self._chunks.popleft()
                self._in_memory -= len(output.data)
                return output
            if self._segments:
                return self._unspill()
            if self._ended:
                return None
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    def close(self) -> None:
        """Drop everything after the reader has left."""
        self._ended = True
        self._clear()

    def _spill(self, output: Output) -> None:
        if self._on_disk + len(output.data) > self._disk:
            raise SpoolFull(f"more than {self._disk >> 20} MiB are unread")
        if not self._segments or self._segments[-1].size >= _SEGMENT_BYTES:
            self._segments.append(_Segment(self._directory))
        self._segments[-1].append(output)
        self._on_disk += len(output.data)

    def _unspill(self) -> Output:
        segment = self._segments[0]
        output = segment.take()
        self._on_disk -= len(output.data)
        if segment.is_read:
            self._segments.popleft().close()
        return output

    def _clear(self) -> None:
        self._chunks.clear()
        segments, self._segments = self._segments, deque()
        if segments:  # freeing a gigabyte takes the kernel 0.1 s
            _ = asyncio.get_running_loop().run_in_executor(None, _close, segments)

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class _Segment:
    """A file of records; its disk space is freed once all records are read."""

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self._read = 0
        self.size = 0

    @property
    def is_read(self) -> bool:
        return self._read == self.size

    def append(self, output: Output) -> None:
        header = _RECORD.pack(_STREAMS.index(output.stream), len(output.data))
        written = os.pwritev(self._file.fileno(), [header, output.data], self.size)
        if written != len(header) + len(output.data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += written

    def take(self) -> Output:
        """Read the next record; there must be one."""
        header = os.pread(self._file.fileno(), _RECORD.size, self._read)
        stream, size = _RECORD.unpack(header)
        data = os.pread(self._file.fileno(), size, self._read + len(header))
        self._read += len(header) + size
        return Output(_STREAMS[stream], data)

    def close(self) -> None:
        self._file.close()


def _close(segments: Iterable[_Segment]) -> None:
    for segment in segments:
        segment.close()
