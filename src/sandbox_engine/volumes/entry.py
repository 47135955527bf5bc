import os
import posixpath
import stat
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from sandbox_engine.rootfs.ownership import Owner
from sandbox_engine.rootfs.root import Root


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    UNKNOWN = "unknown"


_KINDS = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.SYMLINK}


@dataclass(frozen=True)
class Entry:
    """An entry of a volume; ids are those inside sandboxes."""

    path: str
    kind: Kind
    owner: Owner
    status: os.stat_result
    target: str | None

    @property
    def name(self) -> str:
        return posixpath.basename(self.path) or "/"

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.st_mode)

    @classmethod
    def at(cls, root: Root, path: str, place: int) -> Self:
        """Describe an open entry, which may be a link."""
        return cls._of(root, path, os.fstat(place), link="", directory=place)

    @classmethod
    def within(cls, root: Root, path: str, directory: int, name: str) -> Self:
        """Describe an entry of an open directory."""
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        return cls._of(root, path, status, link=name, directory=directory)

    @classmethod
    def _of(
        cls, root: Root, path: str, status: os.stat_result, *, link: str, directory: int
    ) -> Self:
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), Kind.UNKNOWN)
        target = os.readlink(link, dir_fd=directory) if kind is Kind.SYMLINK else None
        return cls(path, kind, root.owner(status), status, target)
