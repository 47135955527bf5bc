import asyncio
import io
import posixpath
import zipfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta

from sandbox_server.browsers.file_parts import BrowserFiles
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.access import Caller, ServerCaller
from sandbox_server.domain.computers.browsers import SESSION_ENDED, downloads_directory
from sandbox_server.domain.errors import (
    BrowserSessionEnded,
    FileTooLarge,
    InvalidRequest,
    PathNotFound,
)
from sandbox_server.domain.files import Entry, EntryType
from sandbox_server.files.file_access import FileAccess, FileLocation, FileSession

LARGEST_DOWNLOADS = 100 * 2**20
"""Files of a session beyond this, together, cannot be fetched as one archive."""

_UPLOADS = "/tmp/.uploads"  # noqa: S108 - in the sandbox, where Browserbase has it
_MOST_FILES = 1000
_UNFINISHED = ".crdownload"
_WAIT = timedelta(seconds=15)
_MILLISECOND_NS = 1_000_000


class SessionDownloads:
    """The files that the browser of a session has downloaded: in its sandbox, and kept when that ends."""

    def __init__(self, file_access: FileAccess, files: BrowserFiles) -> None:
        self._file_access = file_access
        self._files = files

    async def read_archive(self, caller: Caller, row: BrowserSession) -> bytes:
        """Read all complete downloads as a zip archive; an empty one if there are none."""
        if row.state in SESSION_ENDED:
            return await self._files.find(row.id) or await self._pack_left(row)
        return await self._pack(caller, row)

    async def upload(self, caller: Caller, row: BrowserSession, name: str, content: bytes) -> str:
        """Put a file where file inputs of pages find it; returns its path."""
        if row.state in SESSION_ENDED:
            raise BrowserSessionEnded(row.id, row.state_reason)
        plain = posixpath.basename(name)
        if plain in {"", ".", ".."} or "\0" in plain:
            raise InvalidRequest("The uploaded file has no name.")
        path = f"{_UPLOADS}/{plain}"
        location = FileLocation(sandbox_id=row.sandbox_id, path=path, user=None, wait=_WAIT)
        async with self._file_access.open(caller, location) as session:
            await session.transfers.upload(path, _once(content), length=len(content))
        return path

    async def keep(self, row: BrowserSession) -> None:
        """Keep the downloads of an ended session, whose sandbox is about to be deleted."""
        archive = await self._pack(ServerCaller.of(row.tenant_id), row)
        if len(archive) > len(_zip([], {})):
            await self._files.write(row.id, archive)

    async def _pack_left(self, row: BrowserSession) -> bytes:
        """Pack what the sandbox of an ended session still has until it is deleted."""
        return (
            _zip([], {})
            if row.finished_at is not None
            else await self._pack(ServerCaller.of(row.tenant_id), row)
        )

    async def _pack(self, caller: Caller, row: BrowserSession) -> bytes:
        directory = downloads_directory(row.id)
        location = FileLocation(sandbox_id=row.sandbox_id, path=directory, user=None, wait=_WAIT)
        async with self._file_access.open(caller, location) as session:
            found = await _list_complete(session, directory)
            if sum(entry.size for entry in found) > LARGEST_DOWNLOADS:
                raise FileTooLarge(directory, limit=LARGEST_DOWNLOADS)
            contents = [
                (entry, await session.inside.read_file(entry.path, limit=LARGEST_DOWNLOADS))
                for entry in found
            ]
        return await asyncio.to_thread(_zip, contents, row.downloads)


async def _once(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


async def _list_complete(session: FileSession, directory: str) -> list[Entry]:
    try:
        found = await session.files.list_below(directory, depth=1, limit=_MOST_FILES)
    except PathNotFound:  # nothing was downloaded
        return []
    return [
        entry
        for entry in found
        if entry.type is EntryType.FILE and not entry.name.endswith(_UNFINISHED)
    ]


def _zip(contents: Sequence[tuple[Entry, bytes]], names: Mapping[str, str]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for entry, content in contents:
            packed.writestr(archive_name(entry, names.get(entry.name, entry.name)), content)
    return archive.getvalue()


def archive_name(entry: Entry, name: str) -> str:
    """Name a download as Browserbase does: with the instant, in milliseconds, before its extension."""
    stem, extension = posixpath.splitext(posixpath.basename(name) or entry.name)
    return f"{stem}-{entry.modified_ns // _MILLISECOND_NS:013d}{extension}"
