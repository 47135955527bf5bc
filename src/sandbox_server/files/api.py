import posixpath
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from sandbox_client.models import ArchiveFormat, DirectoryCreate, FileMove, FileRead, Page
from sandbox_server.domain import errors
from sandbox_server.files.requests import (
    WAKE_TIMEOUT_S,
    ArchivesDep,
    ConditionsDep,
    ContentsDep,
    Depth,
    DirectoryDep,
    FileAccessDep,
    LocationDep,
    TreeDep,
    User,
    WakeTimeout,
    to_body,
    to_location,
)
from sandbox_server.files.views import (
    answer_archive,
    answer_file,
    answer_head,
    version_headers,
    view_entry,
)
from sandbox_server.files.watching import ENDED
from sandbox_server.http.connection import abort_of
from sandbox_server.http.declared_errors import FILES_USED, UPLOADED, may_fail_with
from sandbox_server.http.deps import Operator, Reader, SandboxIdPath
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import page_of, read_text
from sandbox_server.http.sse import EVENT_STREAM, EventStreamsDep

router = APIRouter(route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/files", tags=["files"])

FileLimit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")]
FileCursor = Annotated[
    str | None, Query(max_length=8192, description="`next_cursor` of the previous page.")
]

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": _BINARY}},
    206: {"description": "The part that `Range` selects."},
    304: {"description": "The file is the version in `If-None-Match`."},
}
_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-tar": _BINARY, "application/gzip": _BINARY}}
}
_REPLACED: dict[int | str, dict[str, Any]] = {204: {"description": "Replaced an existing file."}}
_ENDED = {"description": "The client has received the last event."}
_DEFAULT_NAME = "files"
_NO_NAMES = {"", ".", "..", "~"}
_ARCHIVE_TYPES = {ArchiveFormat.TAR: "application/x-tar", ArchiveFormat.TAR_GZ: "application/gzip"}


@router.get("")
@may_fail_with(errors.TooManyEntries)
async def list_files(
    caller: Reader,
    location: DirectoryDep,
    tree: TreeDep,
    depth: Depth = 1,
    limit: FileLimit = 1000,
    cursor: FileCursor = None,
) -> Page[FileRead]:
    """List a directory's entries, sorted by path; at most about 10,000 entries. Resumes a paused sandbox."""
    found = await tree.list_page(
        caller, location, depth=depth, limit=limit + 1, after=read_text(cursor)
    )
    items = [view_entry(entry) for entry in found]
    return page_of(found, items, limit=limit, position=lambda entry: entry.path)


@router.get("/content", response_class=Response, responses=_FILE)
@may_fail_with(errors.RangeOutside)
async def read_content(
    caller: Operator, location: LocationDep, conditions: ConditionsDep, contents: ContentsDep
) -> Response:
    """Download a file, or a part of it with `Range`. The response has an `ETag` for conditional requests.

    Requires the scope `sandboxes`, because files may contain secrets of the sandbox.
    """
    async with AsyncExitStack() as held:
        content = await held.enter_async_context(contents.reading(caller, location, conditions))
        return answer_file(content, held.pop_all() if content.opened else held)


@router.head("/content", include_in_schema=False)
async def head_content(
    caller: Operator, location: LocationDep, conditions: ConditionsDep, contents: ContentsDep
) -> Response:
    """Return the headers of a download."""
    return answer_head(await contents.describe(caller, location, conditions))


@router.put(
    "/content",
    status_code=201,
    response_class=Response,
    responses=_REPLACED,
    openapi_extra=_UPLOAD,
)
@may_fail_with(*UPLOADED)
async def write_content(
    request: Request,
    caller: Operator,
    location: LocationDep,
    conditions: ConditionsDep,
    contents: ContentsDep,
) -> Response:
    """Upload a file of any size as the raw body. Missing directories are created. 201: the file is new; 204: it replaced another file.

    The file appears once the upload is complete. With `If-Match`, only that version is replaced; with `If-None-Match: *`, no file is replaced.
    """
    written = await contents.write(caller, location, to_body(request), conditions)
    return Response(None, 201 if written.is_new else 204, version_headers(written.entry))


@router.delete("/content", status_code=204)
@may_fail_with(errors.DirectoryNotEmpty, errors.FileBusy)
async def delete_content(
    caller: Operator,
    location: LocationDep,
    conditions: ConditionsDep,
    contents: ContentsDep,
    *,
    recursive: Annotated[
        bool, Query(description="Delete directories with their contents.")
    ] = False,
) -> None:
    """Delete a file, a link or a directory."""
    await contents.remove(caller, location, recursive=recursive, conditions=conditions)


@router.get("/watch", response_class=Response, responses={200: EVENT_STREAM, 204: _ENDED})
async def watch_files(
    request: Request,
    caller: Reader,
    location: DirectoryDep,
    file_access: FileAccessDep,
    events: EventStreamsDep,
    *,
    recursive: Annotated[bool, Query(description="Include all subdirectories.")] = False,
) -> Response:
    """Stream changes in a directory as events: `{type, path}` with the type `created`, `written`, `removed`, `renamed` or `chmod`.

    Events are not stored or replayed. The last event is `{type: "ended", reason}`.
    """
    if request.headers.get("last-event-id") == ENDED:
        return Response(status_code=204)
    watching = await file_access.watch(
        caller, location, recursive=recursive, cut=abort_of(request.scope)
    )
    return events.respond(request, watching, watching.texts(events))


@router.post("/move")
@may_fail_with(*FILES_USED, errors.FileBusy)
async def move_file(
    sandbox_id: SandboxIdPath,
    body: FileMove,
    caller: Operator,
    tree: TreeDep,
    user: User = None,
    wait: WakeTimeout = WAKE_TIMEOUT_S,
) -> FileRead:
    """Move or rename a file or a directory. Missing directories are created."""
    location = to_location(sandbox_id, body.source, user, wait)
    return view_entry(await tree.move(caller, location, body.to))


@router.post("/mkdir", status_code=201, responses={200: {"model": FileRead}})
@may_fail_with(*FILES_USED, errors.DiskFull)
async def make_directory(
    sandbox_id: SandboxIdPath,
    body: DirectoryCreate,
    response: Response,
    caller: Operator,
    tree: TreeDep,
    user: User = None,
    wait: WakeTimeout = WAKE_TIMEOUT_S,
) -> FileRead:
    """Create a directory and its parents. 201: it is new; 200: it existed."""
    created = await tree.make_directory(caller, to_location(sandbox_id, body.path, user, wait))
    response.status_code = 201 if created.is_new else 200
    return view_entry(created.entry)


@router.get("/archive", response_class=Response, responses=_ARCHIVE)
@may_fail_with(errors.ArchiveFailed, errors.CommandTimedOut, errors.DiskFull)
async def pack_directory(
    caller: Operator,
    location: LocationDep,
    archives: ArchivesDep,
    kind: Annotated[ArchiveFormat, Query(alias="format")] = ArchiveFormat.TAR,
) -> Response:
    """Download a directory as a tar archive. Packing needs free space on the sandbox's disk.

    Requires the scope `sandboxes`, as downloading a file does.
    """
    packing = archives.packing(caller, location, compressed=kind is ArchiveFormat.TAR_GZ)
    async with AsyncExitStack() as held:
        opened = await held.enter_async_context(packing)
        name = posixpath.basename(posixpath.normpath(location.path))
        named = f"{_DEFAULT_NAME if name in _NO_NAMES else name}.{kind}"
        return answer_archive(opened, held.pop_all(), name=named, media_type=_ARCHIVE_TYPES[kind])


@router.put("/archive", status_code=204, openapi_extra=_UPLOAD)
@may_fail_with(*UPLOADED, errors.ArchiveFailed)
async def unpack_archive(
    request: Request, caller: Operator, location: LocationDep, archives: ArchivesDep
) -> None:
    """Unpack a tar or tar.gz archive into a directory and overwrite existing files. A corrupt archive may be unpacked in part."""
    await archives.unpack(caller, location, to_body(request))
