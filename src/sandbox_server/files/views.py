"""Responses with files. A browser must not display content of a sandbox as a page of this server."""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from email.utils import format_datetime
from http import HTTPStatus
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from sandbox_client.models import FileRead, FileType
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.files import Entry
from sandbox_server.files.contents import Content
from sandbox_server.http.connection import abort_of
from sandbox_server.providers.protocol.transfers import OpenedFile

log = logging.getLogger(__name__)

STALL = timedelta(minutes=2)
"""Downloads are aborted when the client reads nothing for so long."""

_ANY_TYPE = "application/octet-stream"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class FileStream(StreamingResponse):
    """Streams a file, and closes it however the response ends."""

    def __init__(
        self,
        opened: OpenedFile,
        held: AsyncExitStack,
        *,
        status: HTTPStatus,
        headers: Mapping[str, str],
        media_type: str = _ANY_TYPE,
        stall: timedelta = STALL,
    ) -> None:
        headers = {**headers, "Content-Length": str(opened.length)}
        super().__init__(opened.parts, status, headers, media_type)
        self._held = held
        self._stall = stall

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        abort = abort_of(scope)

        async def send_in_time(message: Message) -> None:
            timer = loop.call_later(self._stall.total_seconds(), abort)
            try:
                await send(message)
            finally:
                timer.cancel()

        async with self._held:
            try:
                await super().__call__(scope, receive, send_in_time)
            except SandboxError as error:  # too late for an error response: cut the connection
                log.info("download aborted reason=%s", error)
                abort()


def answer_head(content: Content) -> Response:
    """Respond with the headers of a file."""
    headers = _content_headers(content)
    if content.is_known:
        return Response(None, HTTPStatus.NOT_MODIFIED, headers)
    headers |= {
        "Content-Length": str(content.entry.size),
        **_content_disposition(content.entry.name),
    }
    return Response(None, HTTPStatus.OK, headers, _ANY_TYPE)


def answer_file(content: Content, held: AsyncExitStack) -> Response:
    """Send a file or the selected part. `held` is closed at the end."""
    opened, part = content.opened, content.part
    if opened is None:
        return answer_head(content)
    headers = _content_headers(content) | _content_disposition(content.entry.name)
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{content.entry.size}"
    status = HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT
    return FileStream(opened, held, status=status, headers=headers)


def answer_archive(
    opened: OpenedFile, held: AsyncExitStack, *, name: str, media_type: str
) -> Response:
    return FileStream(
        opened,
        held,
        status=HTTPStatus.OK,
        headers=_content_disposition(name),
        media_type=media_type,
    )


def _content_headers(content: Content) -> dict[str, str]:
    headers = {"Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    if content.has_version:
        headers |= version_headers(content.entry)
    return headers


def version_headers(entry: Entry) -> dict[str, str]:
    return {
        "ETag": entry.etag,
        "Last-Modified": format_datetime(entry.modified_at, usegmt=True),
    }


def view_entry(entry: Entry) -> FileRead:
    return FileRead(
        path=entry.path,
        name=entry.name,
        type=FileType(entry.type),
        size=entry.size,
        mode=f"{entry.mode:04o}",
        owner=entry.owner,
        group=entry.group,
        modified_at=entry.modified_at,
        symlink_target=entry.symlink_target,
    )


def _content_disposition(name: str) -> dict[str, str]:
    """Make the browser save the file; the name is escaped for the header."""
    plain = _UNSAFE.sub("_", name) or "_"
    exact = quote(name, safe="", errors="replace")
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}"}
