from __future__ import annotations

import asyncio
import gzip
import os
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response, StreamingResponse

from sandbox_engine.envd.files import content_type
from sandbox_engine.envd.files.ranges import (
    InvalidRange,
    NoOverlap,
    PreconditionResult,
    Range,
    evaluate,
    ranges,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from sandbox_engine.rootfs.root import Root
    from sandbox_engine.system.file_threads import FileThreads

_PIECE_BYTES = 256 * 1024
# The fastest level: clients are close to the engine.
_GZIP_LEVEL = 1
_GZIP = 31  # zlib's number for the format

_LATEST = 253_402_300_799  # the last second of the year 9999


class FileTruncated(Exception):
    """The response ended early: the file was truncated, or its sandbox is gone."""


@dataclass(frozen=True)
class OpenFile:
    """An open file with its first bytes; the owner closes it."""

    path: str
    descriptor: int
    size: int
    modified: datetime
    head: bytes

    @classmethod
    def open(cls, root: Root, path: str) -> OpenFile:
        """Open a file of a sandbox; blocks."""
        descriptor = root.open_file(path)
        try:
            status = os.fstat(descriptor)
            head = os.pread(descriptor, _PIECE_BYTES, 0)
        except OSError:
            os.close(descriptor)
            raise
        modified = datetime.fromtimestamp(min(max(int(status.st_mtime), 0), _LATEST), UTC)
        return cls(path, descriptor, status.st_size, modified, head)

    @property
    def is_whole(self) -> bool:
        """Return whether the first bytes are the whole file."""
        return len(self.head) == self.size

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """Read a part of the file; blocks."""
        if offset + size <= len(self.head):
            return self.head[offset : offset + size]
        return os.pread(self.descriptor, size, offset)


class Download:
    """Response to a file request: the whole file, ranges of it, or 304."""

    def __init__(
        self,
        opened: OpenFile,
        *,
        encoding: str,
        headers: Mapping[str, str],
        is_head: bool,
        workers: FileThreads,
    ) -> None:
        self._file = opened
        self._encoding = encoding
        self._headers = headers
        self._is_head = is_head
        self._workers = workers

    async def send(self, root: Root, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response and close the file; stops if the sandbox goes away."""
        try:
            with anyio.CancelScope() as sending, _ending_with(root, sending):
                await (await self._response())(scope, receive, send)
            if sending.cancelled_caught:
                raise FileTruncated
        finally:
            self._file.close()

    async def _response(self) -> Response:
        match evaluate(self._headers, self._file.modified):
            case PreconditionResult.FAILED:
                return Response(status_code=HTTPStatus.PRECONDITION_FAILED)
            case PreconditionResult.NOT_MODIFIED:
                return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=self._common())
        try:
            parts = ranges(self._headers, size=self._file.size, modified=self._file.modified)
        except InvalidRange as error:
            return self._out_of_range(error)
        if parts:
            return self._partial(parts)
        if self._encoding == "gzip":
            return await self._compressed()
        return self._plain(Range(0, self._file.size), self._common(), HTTPStatus.OK)

    def _out_of_range(self, error: InvalidRange) -> Response:
        overlaps_not = isinstance(error, NoOverlap)
        headers = {"content-range": f"bytes */{self._file.size}"} if overlaps_not else {}
        status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        return Response(f"{error}\n", status, headers, "text/plain")

    def _partial(self, parts: list[Range]) -> Response:
        if len(parts) > 1:
            return self._multipart(parts)
        where = {"content-range": parts[0].content_range(self._file.size)}
        return self._plain(parts[0], self._common() | where, HTTPStatus.PARTIAL_CONTENT)

    def _common(self) -> dict[str, str]:
        return {
            "vary": "Accept-Encoding",
            "accept-ranges": "bytes",
            "last-modified": format_datetime(self._file.modified, usegmt=True),
            "content-disposition": content_type.disposition(self._file.path),
        }

    def _content_type(self) -> str:
        by_name = content_type.type_by_name(self._file.path)
        return by_name or content_type.type_by_content(self._file.head)

    def _plain(self, part: Range, headers: dict[str, str], status: HTTPStatus) -> Response:
        headers |= {"content-type": self._content_type(), "content-length": str(part.length)}
        if self._is_head:
            return Response(None, status, headers)
        if self._file.is_whole:
            return Response(self._file.read(*part), status, headers)
        return StreamingResponse(self._pieces(part), status, headers)

    def _multipart(self, parts: list[Range]) -> Response:
        boundary = token_hex(20)
        heads = [self._part_head(part, boundary) for part in parts]
        tail = f"\r\n--{boundary}--\r\n".encode()
        length = sum(map(len, heads)) + sum(part.length for part in parts) + len(tail)
        headers = self._common() | {
            "content-type": f"multipart/byteranges; boundary={boundary}",
            "content-length": str(length),
        }
        if self._is_head:
            return Response(None, HTTPStatus.PARTIAL_CONTENT, headers)
        body = self._multipart_body(zip(heads, parts, strict=True), tail)
        return StreamingResponse(body, HTTPStatus.PARTIAL_CONTENT, headers)

    def _part_head(self, part: Range, boundary: str) -> bytes:
        return (
            f"\r\n--{boundary}\r\n"
            f"Content-Range: {part.content_range(self._file.size)}\r\n"
            f"Content-Type: {self._content_type()}\r\n\r\n"
        ).encode()

    async def _multipart_body(
        self, parts: Iterator[tuple[bytes, Range]], tail: bytes
    ) -> AsyncIterator[bytes]:
        for head, part in parts:
            yield head
            async for piece in self._pieces(part):
                yield piece
        yield tail

    async def _compressed(self) -> Response:
        headers = self._common() | {
            "content-type": content_type.type_by_name(self._file.path) or content_type.UNKNOWN,
            "content-encoding": "gzip",
        }
        if self._is_head:
            return Response(None, headers=headers)
        if self._file.is_whole:
            compress = partial(gzip.compress, self._file.head, _GZIP_LEVEL)
            return Response(await self._workers.run(compress), headers=headers)
        return StreamingResponse(self._compressed_pieces(), headers=headers)

    async def _pieces(self, part: Range) -> AsyncIterator[bytes]:
        offset, end = part.start, part.start + part.length
        while offset < end:
            size = min(_PIECE_BYTES, end - offset)
            piece = await self._workers.run(partial(self._file.read, offset, size))
            if not piece:
                raise FileTruncated
            offset += len(piece)
            yield piece

    async def _compressed_pieces(self) -> AsyncIterator[bytes]:
        compressor = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
        offset = 0

        def advance() -> tuple[int, bytes]:
            piece = self._file.read(offset, _PIECE_BYTES)
            return len(piece), compressor.compress(piece) if piece else compressor.flush()

        while True:
            taken, compressed = await self._workers.run(advance)
            if compressed:
                yield compressed
            if not taken:
                return
            offset += taken


@contextmanager
def _ending_with(root: Root, sending: anyio.CancelScope) -> Iterator[None]:
    """Cancel the transfer when the root is closed: an open file would keep it mounted."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(sending.cancel)

    with root.on_close(stop):
        yield
