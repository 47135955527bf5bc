import posixpath
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import format_datetime

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    DirectoryNotEmpty,
    PathNotFound,
    PathRefused,
    SandboxError,
    TooManyEntries,
)
from sandbox_server.domain.files import Entry, EntryType
from sandbox_server.domain.ids import new_id
from sandbox_server.files.conditions import Conditions
from sandbox_server.files.file_access import FileAccess, FileLocation, FileSession
from sandbox_server.files.path_locks import PathLocks
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.providers.protocol.transfers import ByteRange, OpenedFile

_MAX_ATTEMPTS = 2  # for a file that changes meanwhile
_SET_MODE = 'chmod -- "$SANDBOX_MODE" "$SANDBOX_FILE"'
_SET_MODE_LIMIT = timedelta(seconds=20)


@dataclass(frozen=True, kw_only=True)
class Body:
    """An upload: its parts as they arrive, and its length if known."""

    parts: AsyncGenerator[bytes, None]
    length: int | None


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file to send. A file that changes while it is read has no version."""

    entry: Entry
    is_known: bool = False
    """The client already has this version."""
    has_version: bool = True
    part: ByteRange | None = None
    opened: OpenedFile | None = None


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """The written file, and whether it is new."""

    entry: Entry
    is_new: bool


class FileContents:
    """Reads, replaces and deletes files."""

    def __init__(self, file_access: FileAccess, path_locks: PathLocks) -> None:
        self._file_access = file_access
        self._path_locks = path_locks

    async def describe(
        self, caller: Caller, location: FileLocation, conditions: Conditions
    ) -> Content:
        """Describe a download without its content."""
        async with self._file_access.open(caller, location) as session:
            entry = await _file_at(session.files, location.path)
        conditions.require(location.path, entry)
        return Content(entry=entry, is_known=conditions.is_known(entry))

    @asynccontextmanager
    async def reading(
        self, caller: Caller, location: FileLocation, conditions: Conditions
    ) -> AsyncIterator[Content]:
        """Open a file, or the selected part of it, until the block ends."""
        async with self._file_access.open(caller, location) as session, AsyncExitStack() as held:
            content = await _open(session, location.path, conditions)
            if content.opened is not None:
                held.push_async_callback(content.opened.close)
            yield content

    async def write(
        self, caller: Caller, location: FileLocation, body: Body, conditions: Conditions
    ) -> WrittenFile:
        """Create or replace a file once the upload is complete."""
        async with self._file_access.open(caller, location) as session:
            before = await _replaceable(session.files, location.path)
            _require(conditions, location.path, before)
            target = location.path if before is None else before.path
            async with _temporary_path(session, target) as temporary:
                new = await _upload(session, temporary, body, reported_path=location.path)
                async with self._path_locks.hold(location.sandbox_id, target):
                    now = await _replaceable(session.files, target)
                    _require(conditions, location.path, now)
                    await _replace(session, new, target, now)
            return WrittenFile(entry=new, is_new=now is None)

    async def remove(
        self, caller: Caller, location: FileLocation, *, recursive: bool, conditions: Conditions
    ) -> None:
        """Delete a file, a link or a directory; a directory that is not empty only if `recursive`."""
        async with (
            self._file_access.open(caller, location) as session,
            self._path_locks.hold(location.sandbox_id, location.path),
        ):
            entry = await session.files.stat(location.path)
            conditions.require(location.path, entry)
            await _remove(session.files, entry, recursive=recursive)


async def _open(session: FileSession, path: str, conditions: Conditions) -> Content:
    for _ in range(_MAX_ATTEMPTS):
        entry = await _file_at(session.files, path)
        conditions.require(path, entry)
        if conditions.is_known(entry):
            return Content(entry=entry, is_known=True)
        part = conditions.part_of(entry)
        opened = await session.transfers.open(entry.path, part=part)
        if opened is None:
            continue
        if _is_same_version(opened, entry, part):
            return Content(entry=entry, part=part, opened=opened)
        await opened.close()
    return Content(entry=entry, opened=await session.transfers.open(entry.path), has_version=False)


def _is_same_version(opened: OpenedFile, entry: Entry, part: ByteRange | None) -> bool:
    """Return whether the opened file still has the version that was checked."""
    modified = format_datetime(entry.modified_at, usegmt=True)
    is_whole = part is not None or opened.length == entry.size
    return is_whole and opened.modified in (None, modified)


async def _file_at(files: Files, path: str) -> Entry:
    entry = await files.stat(path)
    if entry.symlink_target is not None:
        entry = await files.stat(entry.symlink_target)
    if entry.type is not EntryType.FILE:
        raise PathRefused(path, _describe(entry))
    return entry


async def _replaceable(files: Files, path: str) -> Entry | None:
    """Find the file at a path or behind a link; other types are refused."""
    if posixpath.basename(path) in {"", ".", ".."}:
        raise PathRefused(path, "it names a directory")
    try:
        return await _file_at(files, path)
    except PathNotFound:
        return None


def _describe(entry: Entry) -> str:
    if entry.type is EntryType.DIRECTORY:
        return "it is a directory"
    return "it is a broken link" if entry.symlink_target is not None else "it is not a regular file"


def _require(conditions: Conditions, path: str, found: Entry | None) -> None:
    conditions.require(path, found)
    conditions.require_absent(path, found)


@asynccontextmanager
async def _temporary_path(session: FileSession, target: str) -> AsyncIterator[str]:
    """Yield a path in the same directory, hence file system. It is removed after a failure."""
    path = posixpath.join(posixpath.dirname(target), f".upload-{new_id()}")
    try:
        yield path
    except BaseException:
        with suppress(SandboxError):
            await session.files.remove(path)
        raise


async def _upload(session: FileSession, temporary: str, body: Body, *, reported_path: str) -> Entry:
    sent = 0

    async def counted() -> AsyncGenerator[bytes, None]:
        nonlocal sent
        async with aclosing(body.parts) as parts:
            async for part in parts:
                sent += len(part)
                yield part

    await session.transfers.upload(
        temporary, counted(), length=body.length, reported_path=reported_path
    )
    new = await session.files.stat(temporary)
    if new.size != sent:
        raise AnswerLost(str(session.row.backend), f"the sandbox stored {new.size} of {sent} bytes")
    return new


async def _replace(session: FileSession, new: Entry, target: str, now: Entry | None) -> None:
    if now is not None and now.mode != new.mode:
        await _set_mode(session, new.path, now.mode)
    await session.files.move(new.path, target)


async def _set_mode(session: FileSession, path: str, mode: int) -> None:
    envs = {"SANDBOX_FILE": path, "SANDBOX_MODE": f"{mode:o}"}
    finished = await session.inside.run_command(
        _SET_MODE, user=session.user, envs=envs, timeout=_SET_MODE_LIMIT
    )
    if finished.exit_code != 0:
        raise PathRefused(path, finished.output.decode(errors="replace").strip())


async def _remove(files: Files, entry: Entry, *, recursive: bool) -> None:
    is_directory = entry.type is EntryType.DIRECTORY and entry.symlink_target is None
    if is_directory and not recursive and await _is_not_empty(files, entry.path):
        raise DirectoryNotEmpty(entry.path)
    await files.remove(entry.path)


async def _is_not_empty(files: Files, path: str) -> bool:
    try:
        return bool(await files.list_below(path, depth=1, limit=1))
    except TooManyEntries:
        return True
