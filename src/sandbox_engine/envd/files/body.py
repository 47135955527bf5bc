from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Receive

    from sandbox_engine.system.file_threads import FileThreads

_PIECE_BYTES = 1 << 20
_COMPRESSED_BYTES = 64 * 1024
_GZIP = 31  # zlib's number for the gzip format


class ClientLeft(Exception):
    """The client disconnected before the request was complete."""


class BadEncoding(ValueError):
    """The body does not match its Content-Encoding."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"error decompressing request body: {problem}")


class NoRoom(Exception):
    """The body is larger than the available space."""


async def read_body(receive: Receive) -> AsyncIterator[bytes]:
    """Yield a request's body as it arrives."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        if body := message.get("body"):
            yield body
        if not message.get("more_body"):
            return


async def gunzip(body: AsyncIterator[bytes], workers: FileThreads) -> AsyncIterator[bytes]:
    """Decompress a body piece by piece, with bounded memory."""
    stream = _GzipStream()
    waiting = bytearray()
    async for received in body:
        waiting += received
        if len(waiting) >= _COMPRESSED_BYTES:
            stream.feed(bytes(waiting))
            waiting.clear()
            while piece := await workers.run(stream.piece):
                yield piece
    stream.feed(bytes(waiting))
    while piece := await workers.run(stream.piece):
        yield piece
    stream.finish()


class _GzipStream:
    """A stream of concatenated gzip members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._compressed = b""
        self._was_full = False

    def feed(self, compressed: bytes) -> None:
        self._compressed += compressed

    def piece(self) -> bytes:
        """Decompress the next piece; empty if more input is needed."""
        while self._compressed or self._was_full:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            try:
                piece = self._member.decompress(self._compressed, _PIECE_BYTES)
            except zlib.error as error:
                raise BadEncoding(f"gzip: {error}") from error
            self._was_full = len(piece) == _PIECE_BYTES and not self._member.eof
            self._compressed = self._member.unused_data or self._member.unconsumed_tail
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        if not self._member.eof:
            raise BadEncoding("gzip: unexpected EOF")


class Spools:
    """Buffers of one sandbox's uploads until each is complete.

    Together they may not exceed the sandbox's free disk space, so that no tenant fills the host's
    disk.
    """

    def __init__(self, directory: Path, workers: FileThreads) -> None:
        self.directory = directory
        self.workers = workers
        self._kept = 0

    def open(self, *, room: int) -> Spool:
        """Open a buffer for a target with this much space."""
        return Spool(self, room=room)

    def keep(self, count: int, *, room: int) -> None:
        if self._kept + count > room:
            raise NoRoom
        self._kept += count

    def release(self, count: int) -> None:
        self._kept -= count


class Spool:
    """Buffer of an upload: in memory up to 1 MiB, then in an unnamed file."""

    def __init__(self, spools: Spools, *, room: int) -> None:
        self.size = 0
        self._spools = spools
        self._room = room
        self._memory = bytearray()
        self._disk: IO[bytes] | None = None

    async def write(self, data: bytes) -> None:
        """Append data."""
        self._spools.keep(len(data), room=self._room)
        self.size += len(data)
        self._memory += data
        if len(self._memory) >= _PIECE_BYTES:
            await self._spools.workers.run(self._move_to_disk)

    def copy_to(self, descriptor: int) -> None:
        """Write the buffered data to the start of an open file."""
        offset = 0
        if self._disk is not None:
            while piece := os.pread(self._disk.fileno(), _PIECE_BYTES, offset):
                offset = _write(descriptor, piece, offset)
        _write(descriptor, self._memory, offset)

    def close(self) -> None:
        self._spools.release(self.size)
        self._memory.clear()
        if self._disk is not None:
            self._disk.close()

    def _move_to_disk(self) -> None:
        if self._disk is None:
            self._disk = TemporaryFile(dir=self._spools.directory, buffering=0)  # noqa: SIM115 - closed with the spool
        self._disk.write(self._memory)
        self._memory.clear()


def _write(descriptor: int, data: bytes | bytearray, offset: int) -> int:
    """Write all of `data`; returns the end offset."""
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            written += os.pwrite(descriptor, view[written:], offset + written)
    return offset + written
