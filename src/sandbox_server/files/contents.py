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
from sandbox_server.files.file_access import Hands, Place, WayIn
from sandbox_server.files.path_locks import Alone
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.providers.protocol.transfers import ByteRange, OpenedFile

_LOOKS = 2  # at a file that changes while it is looked at
_SET_MODE = 'chmod -- "$SANDBOX_MODE" "$SANDBOX_FILE"'
_SET_MODE_LIMIT = timedelta(seconds=20)


@dataclass(frozen=True, kw_only=True)
class Body:
    """What is sent to be a file's content, as it comes; its length if that was said."""

    parts: AsyncGenerator[bytes, None]
    length: int | None


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file as it is to be sent; of one that changes all the time no version is told."""

    entry: Entry
    is_known: bool = False
    """Who asks has this version already."""
    has_version: bool = True
    part: ByteRange | None = None
    opened: OpenedFile | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """The file that there is now, and whether there was none."""

    entry: Entry
    is_new: bool


class FileContents:
    """What files hold: read, replaced and removed, each in one piece."""

    def __init__(self, way_in: WayIn, alone: Alone) -> None:
        self._way_in = way_in
        self._alone = alone

    async def look(self, caller: Caller, place: Place, wanted: Conditions) -> Content:
        """Describe a file as it would be sent."""
        async with self._way_in.into(caller, place) as hands:
            entry = await _file_at(hands.files, place.path)
        wanted.require(place.path, entry)
        return Content(entry=entry, is_known=wanted.is_known(entry))

    @asynccontextmanager
    async def reading(
        self, caller: Caller, place: Place, wanted: Conditions
    ) -> AsyncIterator[Content]:
        """Read a file, or the part of it that is wanted, until the block ends."""
        async with self._way_in.into(caller, place) as hands, AsyncExitStack() as held:
            content = await _open(hands, place.path, wanted)
            if content.opened is not None:
                held.push_async_callback(content.opened.close)
            yield content

    async def write(self, caller: Caller, place: Place, body: Body, wanted: Conditions) -> Written:
        """Put a file where there was none or another, once all of it is there."""
        async with self._way_in.into(caller, place) as hands:
            before = await _replaceable(hands.files, place.path)
            _require(wanted, place.path, before)
            target = place.path if before is None else before.path
            async with _beside(hands, target) as beside:
                new = await _upload(hands, beside, body, told_as=place.path)
                async with self._alone.at(place.sandbox_id, target):
                    now = await _replaceable(hands.files, target)
                    _require(wanted, place.path, now)
                    await _replace(hands, new, target, now)
            return Written(entry=new, is_new=now is None)

    async def remove(
        self, caller: Caller, place: Place, *, recursive: bool, wanted: Conditions
    ) -> None:
        """Remove a file, a link, or a directory; with all that is in it only if that is said."""
        async with (
            self._way_in.into(caller, place) as hands,
            self._alone.at(place.sandbox_id, place.path),
        ):
            entry = await hands.files.stat(place.path)
            wanted.require(place.path, entry)
            await _remove(hands.files, entry, recursive=recursive)


async def _open(hands: Hands, path: str, wanted: Conditions) -> Content:
    for _ in range(_LOOKS):
        entry = await _file_at(hands.files, path)
        wanted.require(path, entry)
        if wanted.is_known(entry):
            return Content(entry=entry, is_known=True)
        part = wanted.part_of(entry)
        opened = await hands.transfers.open(entry.path, part=part)
        if opened is None:
            continue
        if _is_of(opened, entry, part):
            return Content(entry=entry, part=part, opened=opened)
        await opened.close()
    return Content(entry=entry, opened=await hands.transfers.open(entry.path), has_version=False)


def _is_of(opened: OpenedFile, entry: Entry, part: ByteRange | None) -> bool:
    """Tell whether what was opened is the version that was looked at before."""
    modified = format_datetime(entry.modified_at, usegmt=True)
    is_whole = part is not None or opened.length == entry.size
    return is_whole and opened.modified in (None, modified)


async def _file_at(files: Files, path: str) -> Entry:
    entry = await files.stat(path)
    if entry.symlink_target is not None:
        entry = await files.stat(entry.symlink_target)
    if entry.type is not EntryType.FILE:
        raise PathRefused(path, _what_is(entry))
    return entry


async def _replaceable(files: Files, path: str) -> Entry | None:
    """Find the file that is at a path, or at the end of a link there; what is something else is refused."""
    if posixpath.basename(path) in {"", ".", ".."}:
        raise PathRefused(path, "it names a directory")
    try:
        return await _file_at(files, path)
    except PathNotFound:
        return None


def _what_is(entry: Entry) -> str:
    if entry.type is EntryType.DIRECTORY:
        return "it is a directory"
    return "it is a link to nothing" if entry.symlink_target is not None else "it is no file"


def _require(wanted: Conditions, path: str, found: Entry | None) -> None:
    wanted.require(path, found)
    wanted.require_absent(path, found)


@asynccontextmanager
async def _beside(hands: Hands, target: str) -> AsyncIterator[str]:
    """Name a place next to a file, in its file system; what failed leaves nothing there."""
    path = posixpath.join(posixpath.dirname(target), f".upload-{new_id()}")
    try:
        yield path
    except BaseException:
        with suppress(SandboxError):
            await hands.files.remove(path)
        raise


async def _upload(hands: Hands, beside: str, body: Body, *, told_as: str) -> Entry:
    sent = 0

    async def counted() -> AsyncGenerator[bytes, None]:
        nonlocal sent
        async with aclosing(body.parts) as parts:
            async for part in parts:
                sent += len(part)
                yield part

    await hands.transfers.upload(beside, counted(), length=body.length, told_as=told_as)
    new = await hands.files.stat(beside)
    if new.size != sent:
        raise AnswerLost(str(hands.row.backend), f"the sandbox took {new.size} of {sent} bytes")
    return new


async def _replace(hands: Hands, new: Entry, target: str, now: Entry | None) -> None:
    if now is not None and now.mode != new.mode:
        await _set_mode(hands, new.path, now.mode)
    await hands.files.move(new.path, target)


async def _set_mode(hands: Hands, path: str, mode: int) -> None:
    envs = {"SANDBOX_FILE": path, "SANDBOX_MODE": f"{mode:o}"}
    finished = await hands.inside.run_command(
        _SET_MODE, user=hands.user, envs=envs, timeout=_SET_MODE_LIMIT
    )
    if finished.exit_code != 0:
        raise PathRefused(path, finished.output.decode(errors="replace").strip())


async def _remove(files: Files, entry: Entry, *, recursive: bool) -> None:
    is_directory = entry.type is EntryType.DIRECTORY and entry.symlink_target is None
    if is_directory and not recursive and await _holds_something(files, entry.path):
        raise DirectoryNotEmpty(entry.path)
    await files.remove(entry.path)


async def _holds_something(files: Files, path: str) -> bool:
    try:
        return bool(await files.list_below(path, depth=1, limit=1))
    except TooManyEntries:
        return True
