from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from sandbox_engine.envd.files.body import gunzip, read_body
from sandbox_engine.envd.files.compose import Composition, compose
from sandbox_engine.envd.files.download import Download, OpenFile
from sandbox_engine.envd.files.encodings import choose_encoding
from sandbox_engine.envd.files.file_writes import reported
from sandbox_engine.envd.files.kernel_files import read_inside
from sandbox_engine.envd.files.ranges import is_conditional
from sandbox_engine.envd.files.upload import Upload, Uploads, resolve
from sandbox_engine.envd.protocol.access import (
    AccessDenied,
    Operation,
    check_signature,
    is_token,
)
from sandbox_engine.envd.protocol.entries import printable
from sandbox_engine.envd.protocol.metadata import from_headers
from sandbox_engine.envd.protocol.query import FileQuery
from sandbox_engine.envd.protocol.responses import FileError
from sandbox_engine.rootfs.accounts import Account, UnknownUser
from sandbox_engine.rootfs.filesystems import KernelFile

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from sandbox_engine.sandboxes.sandbox import Sandbox
    from sandbox_engine.system.file_threads import FileThreads

_COMPOSE_LIMIT = 1 << 20


class _ReadableInside(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class FileRoutes:
    """Routes of E2B's daemon under `/files`."""

    def __init__(self, sandbox: Sandbox, workers: FileThreads) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._uploads = Uploads(sandbox, workers)

    async def download(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a file or ranges of it."""
        query, headers = FileQuery.of(scope), Headers(scope=scope)
        self._authorize(query, "read", headers)
        encoding = choose_encoding(
            headers.get("accept-encoding"), only_identity=is_conditional(headers)
        )
        try:
            opened = await self._workers.run(partial(self._open, query), discard=OpenFile.close)
        except _ReadableInside as error:
            contents = await read_inside(self._sandbox, error.path)
            await Response(contents, media_type="text/plain")(scope, receive, send)
            return
        answer = Download(
            opened,
            encoding=encoding,
            headers=headers,
            is_head=scope["method"] == "HEAD",
            workers=self._workers,
        )
        await answer.send(self._sandbox.root, scope, receive, send)

    async def upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store one or more files."""
        query, headers = FileQuery.of(scope), Headers(scope=scope)
        self._authorize(query, "write", headers)
        body = self._decoded(read_body(receive), headers)
        account = await self._workers.run(partial(self._account, query.username))
        upload = Upload(
            account,
            self._sandbox.default_workdir,
            query.path,
            from_headers(headers.items()),
            _length(headers),
        )
        content_type = headers.get("content-type", "")
        match content_type.partition(";")[0].strip().lower():
            case "application/octet-stream":
                stored = await self._uploads.take_body(body, upload)
            case kind if kind.startswith("multipart/"):
                stored = await self._uploads.take_form(body, content_type, upload)
            case _:
                raise FileError(
                    400,
                    f"unsupported content type: {content_type}, "
                    "expected multipart/form-data or application/octet-stream",
                )
        await JSONResponse(stored)(scope, receive, send)

    async def compose(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Concatenate files into one."""
        wanted = Composition.parse(await _read_small(receive))
        path = await self._workers.run(partial(self._compose, wanted))
        composed = {"path": printable(path), "name": posixpath.basename(path), "type": "file"}
        await JSONResponse(composed)(scope, receive, send)

    def _authorize(self, query: FileQuery, operation: Operation, headers: Headers) -> None:
        token = self._sandbox.access_token
        if not token:
            return
        received = headers.get("x-access-token")
        if received is None:
            check_signature(query.signed(operation), token)
        elif not is_token(token, received):
            raise AccessDenied("access token present in header but does not match")

    def _account(self, username: str | None) -> Account:
        try:
            return self._sandbox.accounts.find(username or self._sandbox.default_user)
        except UnknownUser as error:
            text = f"error looking up user '{error.name}': user: {error}"
            raise FileError(401, text) from error

    def _open(self, query: FileQuery) -> OpenFile:
        account = self._account(query.username)
        path = resolve(query.path or "", account, workdir=self._sandbox.default_workdir)
        with reported(f"error opening file '{path}'"):
            try:
                return OpenFile.open(self._sandbox.root, path)
            except FileNotFoundError as error:
                raise FileError(404, f"path '{path}' does not exist") from error
            except KernelFile as error:
                raise _ReadableInside(path) from error
            except IsADirectoryError as error:
                raise FileError(400, f"path '{path}' is a directory") from error

    def _compose(self, wanted: Composition) -> str:
        account = self._account(wanted.username)
        wanted = wanted.resolved(account, workdir=self._sandbox.default_workdir)
        compose(self._sandbox.root, wanted.source_paths, wanted.destination, account)
        return wanted.destination

    def _decoded(self, body: AsyncIterator[bytes], headers: Headers) -> AsyncIterator[bytes]:
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding == "gzip":
            return gunzip(body, self._workers)
        if encoding in {"", "identity"}:
            return body
        raise FileError(
            400,
            "error decompressing request body: "
            f"unsupported Content-Encoding: {encoding}, supported: [gzip]",
        )


def _length(headers: Headers) -> int | None:
    """Return the length of the body if it is known in advance."""
    length = headers.get("content-length", "")
    is_plain = headers.get("content-encoding", "identity") == "identity"
    return int(length) if is_plain and length.isascii() and length.isdecimal() else None


async def _read_small(receive: Receive) -> bytes:
    body = bytearray()
    async for received in read_body(receive):
        body += received
        if len(body) > _COMPOSE_LIMIT:
            raise FileError(413, "request body too large")
    return bytes(body)
