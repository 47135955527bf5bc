from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.domain.access import Caller
from sandbox_server.domain.files import Entry
from sandbox_server.files.file_access import FileAccess, FileLocation
from sandbox_server.files.path_locks import PathLocks


@dataclass(frozen=True, kw_only=True)
class CreatedDirectory:
    """The directory, and whether it is new."""

    entry: Entry
    is_new: bool


class FileTree:
    """Lists and moves files, and creates directories."""

    def __init__(self, file_access: FileAccess, path_locks: PathLocks) -> None:
        self._file_access = file_access
        self._path_locks = path_locks

    async def list_page(
        self,
        caller: Caller,
        location: FileLocation,
        *,
        depth: int,
        limit: int,
        after: str | None = None,
    ) -> Sequence[Entry]:
        """List entries below a directory by path, from the one after `after`."""
        async with self._file_access.open(caller, location) as session:
            return await session.files.list_below(
                location.path, depth=depth, limit=limit, after=after
            )

    async def move(self, caller: Caller, location: FileLocation, destination: str) -> Entry:
        """Move a file or a directory. An existing file at the destination is replaced."""
        async with (
            self._file_access.open(caller, location) as session,
            self._path_locks.hold(location.sandbox_id, location.path, destination),
        ):
            return await session.files.move(location.path, destination)

    async def make_directory(self, caller: Caller, location: FileLocation) -> CreatedDirectory:
        """Create a directory and its parents if missing."""
        async with self._file_access.open(caller, location) as session:
            made = await session.files.make_directory(location.path)
            entry = made or await session.files.stat(location.path)
            return CreatedDirectory(entry=entry, is_new=made is not None)
