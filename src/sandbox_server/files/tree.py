from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.domain.access import Caller
from sandbox_server.domain.files import Entry
from sandbox_server.files.file_access import Place, WayIn
from sandbox_server.files.path_locks import Alone


@dataclass(frozen=True, kw_only=True)
class Made:
    """The directory that there is now, and whether there was none."""

    entry: Entry
    is_new: bool


class FileTree:
    """Where files are: listed, moved, watched."""

    def __init__(self, way_in: WayIn, alone: Alone) -> None:
        self._way_in = way_in
        self._alone = alone

    async def list_page(
        self, caller: Caller, place: Place, *, depth: int, limit: int, after: str | None = None
    ) -> Sequence[Entry]:
        """List what is below a directory in the order of their paths, from the one after `after`."""
        async with self._way_in.into(caller, place) as hands:
            return await hands.files.list_below(place.path, depth=depth, limit=limit, after=after)

    async def move(self, caller: Caller, place: Place, destination: str) -> Entry:
        """Give a file or a directory another name, in place of a file that has it."""
        async with (
            self._way_in.into(caller, place) as hands,
            self._alone.at(place.sandbox_id, place.path, destination),
        ):
            return await hands.files.move(place.path, destination)

    async def make_directory(self, caller: Caller, place: Place) -> Made:
        """Have a directory, with all above it."""
        async with self._way_in.into(caller, place) as hands:
            made = await hands.files.make_directory(place.path)
            entry = made or await hands.files.stat(place.path)
            return Made(entry=entry, is_new=made is not None)
