"""Parameters of file requests: path, version and body."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Query, Request

from sandbox_client.models import DirectoryPath, FilePath, FileUser
from sandbox_server.domain.errors import FileChanged, InvalidRequest, TransferStalled
from sandbox_server.files.archives import Archives
from sandbox_server.files.conditions import Conditions
from sandbox_server.files.contents import Body, FileContents
from sandbox_server.files.file_access import FileAccess, FileLocation
from sandbox_server.files.tree import FileTree
from sandbox_server.http.declared_errors import FILES_USED, may_fail_with
from sandbox_server.http.deps import SandboxIdPath, depends_on
from sandbox_server.http.faults import Malformed

STALL = timedelta(minutes=2)
"""Uploads are aborted when the client sends nothing for so long."""

WakeTimeout = Annotated[
    float,
    Query(
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="Maximum seconds to wait for the sandbox to resume.",
    ),
]
WAKE_TIMEOUT_S = 55.0
WORKING_DIRECTORY = "."
User = Annotated[FileUser | None, Query()]
Depth = Annotated[int, Query(ge=1, le=20, description="Number of levels to list.")]


@may_fail_with(*FILES_USED, InvalidRequest)
async def find_location(
    request: Request,
    sandbox_id: SandboxIdPath,
    path: Annotated[FilePath, Query()],
    user: User = None,
    wait: WakeTimeout = WAKE_TIMEOUT_S,
) -> FileLocation:
    _require_text(request.scope["query_string"])
    return to_location(sandbox_id, path, user, wait)


def to_location(sandbox_id: str, path: str, user: str | None, wait: float) -> FileLocation:
    return FileLocation(sandbox_id=sandbox_id, path=path, user=user, wait=timedelta(seconds=wait))


@may_fail_with(*FILES_USED, InvalidRequest)
async def find_directory(
    request: Request,
    sandbox_id: SandboxIdPath,
    path: Annotated[DirectoryPath, Query()] = WORKING_DIRECTORY,
    user: User = None,
    wait: WakeTimeout = WAKE_TIMEOUT_S,
) -> FileLocation:
    return await find_location(request, sandbox_id, path or WORKING_DIRECTORY, user, wait)


@may_fail_with(FileChanged)
async def find_conditions(request: Request) -> Conditions:
    headers = request.headers
    return Conditions(
        if_match=_all_of(request, "if-match"),
        if_none_match=_all_of(request, "if-none-match"),
        if_modified_since=headers.get("if-modified-since"),
        if_unmodified_since=headers.get("if-unmodified-since"),
        if_range=headers.get("if-range"),
        range=headers.get("range"),
    )


FileAccessDep = Annotated[FileAccess, depends_on(FileAccess)]
LocationDep = Annotated[FileLocation, Depends(find_location)]
DirectoryDep = Annotated[FileLocation, Depends(find_directory)]
ConditionsDep = Annotated[Conditions, Depends(find_conditions)]
ContentsDep = Annotated[FileContents, depends_on(FileContents)]
TreeDep = Annotated[FileTree, depends_on(FileTree)]
ArchivesDep = Annotated[Archives, depends_on(Archives)]


def to_body(request: Request, *, stall: timedelta = STALL) -> Body:
    """Stream the raw body."""
    headers = request.headers
    if "content-range" in headers:
        raise InvalidRequest("Content-Range is not supported: send the whole file.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise InvalidRequest("Content-Encoding is not supported: send the raw content.")
    length = headers.get("content-length")
    return Body(parts=_parts(request, stall), length=None if length is None else int(length))


async def _parts(request: Request, stall: timedelta) -> AsyncGenerator[bytes, None]:
    more = True
    while more:
        try:
            async with asyncio.timeout(stall.total_seconds()):
                message = await request.receive()
        except TimeoutError:
            raise TransferStalled(stall) from None
        if message["type"] == "http.disconnect":
            raise Malformed("The client disconnected before the end of the body.")
        more = message.get("more_body", False)
        if part := message.get("body"):
            yield part


def _all_of(request: Request, name: str) -> str | None:
    return ",".join(request.headers.getlist(name)) or None


def _require_text(query: bytes) -> None:
    # Otherwise all invalid bytes would be decoded to the same replacement character, hence another path.
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The query string is not valid UTF-8.") from None
