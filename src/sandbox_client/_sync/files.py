from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from sandbox_client import models
from sandbox_client._sync.concurrency import Content, parts_of, sleep, write
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.streams import follow_stream
from sandbox_client._sync.transport import Transport
from sandbox_client.errors import (
    PathNotFound,
    PathRefused,
    RangeOutside,
    SandboxError,
    UnexpectedAnswer,
)
from sandbox_client.events import FileEvent, WatchEnded, WatchGap
from sandbox_client.events.parsing import read_file_event
from sandbox_client.protocol.calls import Call, Query, call
from sandbox_client.protocol.file_version import FileVersion, range_header
from sandbox_client.protocol.retries import Retries

_PART = 1024 * 1024
_PACKING_S = 600.0  # the server sends nothing until it is done
_AS_IT_IS = {"Accept-Encoding": "identity"}


class Files:
    """Files of a sandbox. Relative paths start at the working directory, as for commands. Every call resumes a paused sandbox."""

    def __init__(self, transport: Transport, path: str, *, user: str | None = None) -> None:
        self._transport = transport
        self._path = path
        self._user = user

    def as_user(self, user: str) -> Files:
        """Access the files as another user of the sandbox."""
        return Files(self._transport, self._path, user=user)

    def list(self, path: str = ".", *, depth: int = 1) -> Generator[models.FileRead, None, None]:
        """List a directory, sorted by path."""
        query = self._query(path, depth=depth)
        return list_all(self._transport, self._path, models.Page[models.FileRead], query)

    def stat(self, path: str) -> FileVersion:
        """Get the size and version of a file without reading it."""
        request = self._content("HEAD", path)
        try:
            response = self._transport.send(request)
        except UnexpectedAnswer:  # the answer to HEAD has no body, so ask with GET for the error
            instead = self._content("GET", path).with_headers(range_header(0, 1))
            self._transport.send(instead)
            response = self._transport.send(request)
        return FileVersion.from_headers(
            response.headers, size=int(response.headers["content-length"])
        )

    def exists(self, path: str) -> bool:
        """Check whether a file or directory exists."""
        try:
            self.stat(path)
        except PathNotFound:
            return False
        except PathRefused:  # it exists but is not a file
            return True
        return True

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Read a file or a range of its bytes."""
        with closing(self.stream(path, offset=offset, limit=limit)) as parts:
            return b"".join(list(parts))

    def read_text(self, path: str) -> str:
        """Read a UTF-8 file."""
        return (self.read(path)).decode()

    def stream(
        self, path: str, *, offset: int = 0, limit: int | None = None
    ) -> Generator[bytes, None, None]:
        """Stream a file. After a lost connection it continues in the same version of the file."""
        read, version = 0, None
        retries: Retries | None = None
        while limit is None or read < limit:
            headers = range_header(offset + read, None if limit is None else limit - read)
            request = self._content("GET", path).with_headers(headers)
            if version is not None:
                request = request.with_headers({"If-Match": version})
            try:
                with self._transport.attempt(request) as response:
                    version, retries = response.headers.get("etag"), None
                    for part in response.iter_bytes(_PART):
                        read += len(part)
                        yield part
                    return
            except RangeOutside:  # end of file
                return
            except SandboxError as error:
                if read and version is None:
                    raise
                retries = retries or self._transport.retries(request)
                pause = retries.delay_after(error)
            sleep(pause)

    def download(self, path: str, to: Path | str | BinaryIO) -> None:
        """Download a file to a local path, atomically, or into an open file."""
        with closing(self.stream(path)) as parts:
            save(parts, to)

    def write(
        self,
        path: str,
        content: Content,
        *,
        if_match: str | None = None,
        must_be_new: bool = False,
    ) -> FileVersion:
        """Write a file atomically; missing parent directories are created.

        With `if_match`, only the version with that ETag is replaced.
        """
        conditions = _conditions(if_match, must_be_new=must_be_new)
        request = self._content("PUT", path, headers=conditions)
        response = self._put(request, content, may_repeat=not conditions)
        return FileVersion.from_headers(response)

    def upload(self, source: Path | str, path: str) -> FileVersion:
        """Upload a local file."""
        return self.write(path, Path(source))

    def delete(self, path: str, *, recursive: bool = False, if_match: str | None = None) -> None:
        """Delete a file, a symlink or a directory; a non-empty directory needs `recursive`."""
        request = self._content("DELETE", path, headers=_conditions(if_match))
        self._transport.delete(request.with_query(recursive=recursive))

    def move(self, source: str, to: str) -> models.FileRead:
        """Move a file or directory; missing parent directories are created."""
        body = models.FileMove(source=source, to=to)
        request = call("POST", f"{self._path}/move", body, query={"user": self._user})
        return self._transport.fetch(models.FileRead, request)

    def mkdir(self, path: str) -> models.FileRead:
        """Create a directory and its parents; an existing one is no error."""
        body, query = models.DirectoryCreate(path=path), {"user": self._user}
        request = call("POST", f"{self._path}/mkdir", body, query=query, may_repeat=True)
        return self._transport.fetch(models.FileRead, request)

    def watch(
        self, path: str = ".", *, recursive: bool = False
    ) -> Generator[FileEvent, None, None]:
        """Stream changes of a directory from now on. The last event is WatchEnded with the reason."""
        request = call("GET", f"{self._path}/watch", query=self._query(path, recursive=recursive))
        return follow_stream(
            self._transport,
            request,
            read_file_event,
            missed=WatchGap(),
            is_last=lambda event: isinstance(event, WatchEnded),
        )

    def stream_archive(
        self, path: str, *, kind: models.ArchiveFormat | str = models.ArchiveFormat.TAR
    ) -> Generator[bytes, None, None]:
        """Stream a directory as an archive."""
        query = self._query(path, format=models.ArchiveFormat(kind).value)
        request = call("GET", f"{self._path}/archive", query=query, headers=_AS_IT_IS)
        with self._transport.attempt(request.with_read_timeout(_PACKING_S)) as response:
            yield from response.iter_bytes(_PART)

    def pack(
        self,
        path: str,
        to: Path | str | BinaryIO,
        *,
        kind: models.ArchiveFormat | str = models.ArchiveFormat.TAR,
    ) -> None:
        """Download a directory as an archive."""
        with closing(self.stream_archive(path, kind=kind)) as parts:
            save(parts, to)

    def unpack(self, path: str, content: Content) -> None:
        """Unpack a tar or tar.gz archive into a directory, overwriting existing files."""
        request = call("PUT", f"{self._path}/archive", query=self._query(path))
        self._put(request.with_read_timeout(_PACKING_S), content)

    def _put(
        self, request: Call, content: Content, *, may_repeat: bool = True
    ) -> Mapping[str, str]:
        again = may_repeat and isinstance(content, bytes | str | Path)
        request = request.once() if not again else request
        if isinstance(content, Path):
            request = request.with_headers({"Content-Length": str(content.stat().st_size)})
        if isinstance(content, bytes | str):
            whole = content.encode() if isinstance(content, str) else content
            return (self._transport.send(request.with_body(whole))).headers
        return (self._transport.send(request, parts=lambda: parts_of(content))).headers

    def _content(self, method: str, path: str, *, headers: Mapping[str, str] | None = None) -> Call:
        headers = {**_AS_IT_IS, **(headers or {})}
        return call(method, f"{self._path}/content", query=self._query(path), headers=headers)

    def _query(self, path: str, **more: str | float | bool) -> Query:
        return {"path": path, "user": self._user, **more}


def _conditions(if_match: str | None, *, must_be_new: bool = False) -> dict[str, str]:
    if if_match is not None:
        return {"If-Match": if_match}
    return {"If-None-Match": "*"} if must_be_new else {}


def save(parts: Iterator[bytes], to: Path | str | BinaryIO) -> None:
    """Write to a local path, atomically, or into an open file."""
    if not isinstance(to, Path | str):
        for part in parts:
            write(to, part)
        return
    final = Path(to)
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            for part in parts:
                write(file, part)
        unfinished.replace(final)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
