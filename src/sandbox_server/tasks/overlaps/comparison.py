from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.git.bare import BareRepository
from sandbox_server.tasks.overlaps.repository import OpenWork

_HEADER_FIELDS = 5

Changes = frozenset[tuple[str, str, str]]
"""Path, mode and blob of each file that a task has changed, added or removed."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The overlap of two tasks: files that conflict, or all of their changes."""

    files: Sequence[str]
    is_identical: bool


class WorkComparer:
    """Compares the saves of tasks in one repository that has the objects of all of them."""

    def __init__(self, bare: BareRepository) -> None:
        self._bare = bare
        self._changes: dict[tuple[str, str], Changes] = {}

    async def compare(self, one: OpenWork, other: OpenWork) -> Comparison:
        """Predict the conflicts of two tasks; tasks with the same changes do not conflict, but one is superfluous."""
        changes = await self._list_changes(one)
        if changes and changes == await self._list_changes(other):
            return Comparison(files=sorted({path for path, _, _ in changes}), is_identical=True)
        conflicts = await self._bare.merge_conflicts(one.save.sha, other.save.sha)
        return Comparison(files=conflicts, is_identical=False)

    async def _list_changes(self, work: OpenWork) -> Changes:
        assert work.save.base_sha is not None
        points = (work.save.base_sha, work.save.sha)
        if points not in self._changes:
            self._changes[points] = await _read_changes(self._bare, *points)
        return self._changes[points]


async def _read_changes(bare: BareRepository, base: str, sha: str) -> Changes:
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    said = await bare.git("diff-tree", *options, base, sha)
    fields = said.stdout.decode(errors="replace").split("\0")
    return frozenset(map(_read_change, fields[0::2], fields[1::2]))


def _read_change(header: str, path: str) -> tuple[str, str, str]:
    _, mode, _, blob, _ = header.split(" ", _HEADER_FIELDS - 1)
    return path, mode, blob
