from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import ArchiveFailed, PathNotFound, PathRefused, SandboxError
from sandbox_server.domain.files import Entry, EntryType
from sandbox_server.domain.ids import new_id
from sandbox_server.files.contents import Body
from sandbox_server.files.file_access import FileAccess, FileLocation, FileSession
from sandbox_server.providers.protocol.transfers import OpenedFile

_LIMIT = timedelta(minutes=10)
_MAX_ERROR_OUTPUT = 2000

_PACK = 'umask 077; tar -C "$SANDBOX_DIRECTORY" -c -f "$SANDBOX_ARCHIVE" .'
_PACK_SMALL = 'umask 077; tar -C "$SANDBOX_DIRECTORY" -c -z -f "$SANDBOX_ARCHIVE" .'
_UNPACK = 'tar -C "$SANDBOX_DIRECTORY" -x -f "$SANDBOX_ARCHIVE"'
_CHANGED_MEANWHILE = 1  # tar's exit code if files changed while they were read


class Archives:
    """Packs and unpacks directories as tar archives, in the sandbox and as its user.

    The archive is a temporary file there: tar does not wait for a slow client, and its failure is known before the response
    starts. Links and paths in an archive cannot lead out of the sandbox.
    """

    def __init__(self, file_access: FileAccess) -> None:
        self._file_access = file_access

    @asynccontextmanager
    async def packing(
        self, caller: Caller, location: FileLocation, *, compressed: bool
    ) -> AsyncIterator[OpenedFile]:
        """Open a directory as an archive until the block ends."""
        async with self._file_access.open(caller, location) as session, AsyncExitStack() as held:
            directory = await _directory_at(session, location.path)
            archive = _new_archive()
            async with _removed_afterwards(session, archive):
                await _run_tar(session, _PACK_SMALL if compressed else _PACK, directory, archive)
                opened = await session.transfers.open(archive)
            if opened is None:
                raise PathNotFound(archive)
            held.push_async_callback(opened.close)
            yield opened

    async def unpack(self, caller: Caller, location: FileLocation, body: Body) -> None:
        """Unpack an archive into a directory, which is created if missing."""
        async with self._file_access.open(caller, location) as session:
            made = await session.files.make_directory(location.path)
            directory = made or await _directory_at(session, location.path)
            archive = _new_archive()
            async with _removed_afterwards(session, archive):
                await session.transfers.upload(
                    archive, body.parts, length=body.length, reported_path=location.path
                )
                await _run_tar(session, _UNPACK, directory, archive)


def _new_archive() -> str:
    return f"/tmp/.archive-{new_id()}"  # noqa: S108 - in the sandbox


@asynccontextmanager
async def _removed_afterwards(session: FileSession, archive: str) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with suppress(SandboxError):
            await session.files.remove(archive)


async def _directory_at(session: FileSession, path: str) -> Entry:
    entry = await session.files.stat(path)
    if entry.type is not EntryType.DIRECTORY:
        raise PathRefused(path, "it is not a directory")
    return entry


async def _run_tar(session: FileSession, command: str, directory: Entry, archive: str) -> None:
    envs = {"SANDBOX_DIRECTORY": directory.path, "SANDBOX_ARCHIVE": archive}
    finished = await session.inside.run_command(
        command, user=session.user, envs=envs, timeout=_LIMIT
    )
    harmless = {0} if command == _UNPACK else {0, _CHANGED_MEANWHILE}
    if finished.exit_code not in harmless:
        message = finished.output[-_MAX_ERROR_OUTPUT:].decode(errors="replace").strip()
        raise ArchiveFailed(directory.path, message)
