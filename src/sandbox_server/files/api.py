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

FileLimit = Annotated[int, Query(ge=1, le=1000, description="How many to tell at the most.")]
FileCursor = Annotated[
    str | None, Query(max_length=8192, description="`next_cursor` of the part before.")
]

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": _BINARY}},
    206: {"description": "The part that Range asks for."},
    304: {"description": "It is the version that If-None-Match names."},
}
_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-tar": _BINARY, "application/gzip": _BINARY}}
}
_REPLACED: dict[int | str, dict[str, Any]] = {204: {"description": "There was a file."}}
_ENDED = {"description": "It was told that there are no more events."}
_DEFAULT_NAME = "files"
_NO_NAMES = {"", ".", "..", "~"}
_TYPES = {ArchiveFormat.TAR: "application/x-tar", ArchiveFormat.TAR_GZ: "application/gzip"}


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
    """List what is in a directory, in the order of the paths; some 10,000 entries may be below it. It wakes a paused sandbox."""
    found = await tree.list_page(
        caller, location, depth=depth, limit=limit + 1, after=read_text(cursor)
    )
    items = [view_entry(entry) for entry in found]
    return page_of(found, items, limit=limit, position=lambda entry: entry.path)


@router.get("/content", response_class=Response, responses=_FILE)
@may_fail_with(errors.RangeOutside)
async def read_content(
    caller: Operator, location: LocationDep, wanted: ConditionsDep, contents: ContentsDep
) -> Response:
    """Download a file, or with Range a part of it; its ETag tells this version from others.

    Takes the scope `sandboxes`: secrets of the sandbox are in files, and copies of these can be anywhere.
    """
    async with AsyncExitStack() as held:
        content = await held.enter_async_context(contents.reading(caller, location, wanted))
        return answer_file(content, held.pop_all() if content.opened else held)


@router.head("/content", include_in_schema=False)
async def head_content(
    caller: Operator, location: LocationDep, wanted: ConditionsDep, contents: ContentsDep
) -> Response:
    """Tell what a download would send."""
    return answer_head(await contents.look(caller, location, wanted))


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
    wanted: ConditionsDep,
    contents: ContentsDep,
) -> Response:
    """Upload a file: the body as it is, of any size; directories on the way are made too. 204: it replaced another.

    The file appears when all of it is there. With If-Match it replaces only that version, with `If-None-Match: *` none.
    """
    written = await contents.write(caller, location, to_body(request), wanted)
    return Response(None, 201 if written.is_new else 204, version_headers(written.entry))


@router.delete("/content", status_code=204)
@may_fail_with(errors.DirectoryNotEmpty, errors.FileBusy)
async def delete_content(
    caller: Operator,
    location: LocationDep,
    wanted: ConditionsDep,
    contents: ContentsDep,
    *,
    recursive: Annotated[bool, Query(description="Directories with all that is in them.")] = False,
) -> None:
    """Delete a file, a link, or a directory."""
    await contents.remove(caller, location, recursive=recursive, wanted=wanted)


@router.get("/watch", response_class=Response, responses={200: EVENT_STREAM, 204: _ENDED})
async def watch_files(
    request: Request,
    caller: Reader,
    location: DirectoryDep,
    file_access: FileAccessDep,
    events: EventStreamsDep,
    *,
    recursive: Annotated[bool, Query(description="All levels below it.")] = False,
) -> Response:
    """Follow what happens in a directory from now on, as events: `{type, path}` with `created`, `written`, `removed`, `renamed` or `chmod`.

    Nothing is replayed. The last event says why there are no more: `{type: "ended", reason}`.
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
    """Give a file or a directory another path; directories on the way are made too."""
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
    """Make a directory, with those above it. 200: it was there."""
    made = await tree.make_directory(caller, to_location(sandbox_id, body.path, user, wait))
    response.status_code = 201 if made.is_new else 200
    return view_entry(made.entry)


@router.get("/archive", response_class=Response, responses=_ARCHIVE)
@may_fail_with(errors.ArchiveFailed, errors.CommandTimedOut, errors.DiskFull)
async def pack_directory(
    caller: Operator,
    location: LocationDep,
    archives: ArchivesDep,
    kind: Annotated[ArchiveFormat, Query(alias="format")] = ArchiveFormat.TAR,
) -> Response:
    """Download a directory as a tar archive, which takes room on the sandbox's disk while it is packed.

    Takes the scope `sandboxes`, as reading a file does.
    """
    packing = archives.packing(caller, location, compressed=kind is ArchiveFormat.TAR_GZ)
    async with AsyncExitStack() as held:
        opened = await held.enter_async_context(packing)
        name = posixpath.basename(posixpath.normpath(location.path))
        named = f"{_DEFAULT_NAME if name in _NO_NAMES else name}.{kind}"
        return answer_archive(opened, held.pop_all(), name=named, media_type=_TYPES[kind])


@router.put("/archive", status_code=204, openapi_extra=_UPLOAD)
@may_fail_with(*UPLOADED, errors.ArchiveFailed)
async def unpack_archive(
    request: Request, caller: Operator, location: LocationDep, archives: ArchivesDep
) -> None:
    """Unpack a tar or tar.gz archive into a directory, over what is there; of one that is broken a part is unpacked."""
    await archives.unpack(caller, location, to_body(request))
