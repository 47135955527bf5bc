"""COPY of uploaded files by E2B's rules, which are Docker's.

A file or link goes to the exact destination, or into it if that is a directory or ends in a slash.
A directory is merged into the destination. Of a pattern, which the client has matched, the part
before its first wildcard is the directory.
"""

import posixpath
import re
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from sandbox_engine.rootfs.ownership import Owner
from sandbox_engine.rootfs.tree_writer import TreeWriter
from sandbox_engine.templates.building.archive import BadArchive, Entry

_WILDCARD = re.compile(r"[*?\[{\\]")
_ROOT = Owner(0, 0)
_DIRECTORY_MODE = 0o755
_PERMISSIONS = 0o777  # setuid bits only from the step's own mode, not from the archive


@dataclass(frozen=True)
class CopyOrder:
    """Source, destination and ownership of a COPY; an empty `source` means everything."""

    source: str
    destination: str
    owner: Owner
    mode: int | None = None

    @property
    def directory(self) -> str:
        """The destination with a slash at the end."""
        return self.destination.rstrip("/") or "/"

    def file_mode(self, member: tarfile.TarInfo) -> int:
        return stat.S_IMODE(member.mode) & _PERMISSIONS if self.mode is None else self.mode

    @property
    def directory_mode(self) -> int:
        return _DIRECTORY_MODE if self.mode is None else self.mode


class SourceMissing(Exception):
    """The archive does not contain the source."""

    def __init__(self, source: str) -> None:
        super().__init__(f"source path does not exist: {source or '.'}")


def literal_part(pattern: str) -> str:
    """Return the directories before a pattern's first wildcard; without one the whole path."""
    parts = []
    for part in pattern.split("/"):
        if _WILDCARD.search(part):
            break
        parts.append(part)
    path = posixpath.normpath("/".join(parts) or ".")
    if path.startswith(("/", "..")):
        raise BadArchive(f"source path is outside of the build context: {pattern}")
    return "" if path == "." else path


def copy_files(order: CopyOrder, entries: Iterable[Entry], tree_writer: TreeWriter) -> None:
    """Write the archive's files to the destination."""
    copy = _Copy(order, tree_writer)
    for member, contents in entries:
        copy.entry(member, contents)
    if copy.is_empty:
        raise SourceMissing(order.source)


class _Copy:
    def __init__(self, order: CopyOrder, tree_writer: TreeWriter) -> None:
        self._order = order
        self._placement = tree_writer
        self._made: set[str] = set()
        self._known: set[str] = set()
        self.is_empty = True

    def entry(self, member: tarfile.TarInfo, contents: BinaryIO | None) -> None:
        below = self._below_source(member.name)
        if below is None:
            return
        self.is_empty = False
        if member.isdir():
            self._directory(below, member)
        elif below:
            path = posixpath.join(self._order.directory, below)
            self._parents(below)
            self._place(path, member, contents)
        else:
            self._place(self._single(), member, contents)

    def _below_source(self, name: str) -> str | None:
        path = posixpath.normpath("/" + name).lstrip("/")
        source = self._order.source
        if not source or path == source:
            return path.removeprefix(source)
        return path.removeprefix(source + "/") if path.startswith(source + "/") else None

    def _single(self) -> str:
        destination = self._order.destination
        if destination.endswith("/") or self._placement.is_directory(destination):
            destination = posixpath.join(destination, posixpath.basename(self._order.source))
        self._make(posixpath.dirname(destination), _ROOT, _DIRECTORY_MODE)
        return destination

    def _directory(self, below: str, member: tarfile.TarInfo) -> None:
        """Create a directory with the archive's mode; an existing one keeps its mode."""
        self._parents(posixpath.join(below, "."))
        if below:
            path = posixpath.join(self._order.directory, below)
            if path in self._made:
                self._placement.directory(path, self._order.owner, self._order.file_mode(member))

    def _parents(self, below: str) -> None:
        path = self._order.directory
        self._make(path, _ROOT, _DIRECTORY_MODE)
        for name in below.split("/")[:-1]:
            path = posixpath.join(path, name)
            if self._make(path, self._order.owner, self._order.directory_mode):
                self._made.add(path)

    def _make(self, path: str, owner: Owner, mode: int) -> bool:
        if path in self._known:
            return False
        self._known.add(path)
        if self._placement.is_directory(path):
            return False
        self._placement.directory(path, owner, mode)
        return True

    def _place(self, path: str, member: tarfile.TarInfo, contents: BinaryIO | None) -> None:
        owner = self._order.owner
        if contents is not None:
            self._placement.file(path, contents, owner, self._order.file_mode(member), member.mtime)
        elif member.issym():
            self._placement.symlink(path, member.linkname, owner)
        elif member.islnk():
            self._placement.link(path, self._linked(member))
        else:
            raise BadArchive(f"{member.name} is not a file, directory or symlink")

    def _linked(self, member: tarfile.TarInfo) -> str:
        below = self._below_source(member.linkname)
        if not below:
            raise BadArchive(
                f"{member.name} is a link to a file that is not copied: {member.linkname}"
            )
        return posixpath.join(self._order.directory, below)
