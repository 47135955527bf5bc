from __future__ import annotations

import os
import posixpath
import stat
from typing import TYPE_CHECKING

from e2b.envd.filesystem.filesystem_pb import EntryInfo, FileType
from protobuf.wkt import Timestamp

from sandbox_engine.envd.protocol.metadata import read_metadata
from sandbox_engine.rootfs.descriptors import closing

if TYPE_CHECKING:
    from sandbox_engine.rootfs.accounts import Accounts
    from sandbox_engine.rootfs.root import Root

_SECOND = 1_000_000_000
# The range of protobuf timestamps: years 1 to 9999. File times may exceed it.
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799

# Letters and order of Go's file modes, which E2B prints.
_KINDS = {
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "L",
    stat.S_IFBLK: "D",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "S",
}
_TYPES = {stat.S_IFREG: FileType.FILE, stat.S_IFDIR: FileType.DIRECTORY}


class EntryReader:
    """Describes files and directories in E2B's format."""

    def __init__(self, root: Root, accounts: Accounts) -> None:
        self._root = root
        self._accounts = accounts

    def at(self, path: str) -> EntryInfo:
        """Describe the entry at `path` without following a link."""
        with closing(self._root.locate(path, os.O_NOFOLLOW)) as place:
            return self.open_at(place, path)

    def open_at(self, place: int, path: str) -> EntryInfo:
        """Describe an open file or directory."""
        status = os.fstat(place)
        return self._entry(path, status, f"/proc/self/fd/{place}", follow=True)

    def within(self, directory: int, name: str, path: str) -> EntryInfo:
        """Describe an entry of an open directory."""
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        return self._entry(path, status, f"/proc/self/fd/{directory}/{name}", follow=False)

    def _entry(self, path: str, status: os.stat_result, access: str, *, follow: bool) -> EntryInfo:
        kind = stat.S_IFMT(status.st_mode)
        owner = self._root.owner(status)
        entry = EntryInfo(
            name=printable(posixpath.basename(path) or "/"),
            type=_TYPES.get(kind, FileType.UNSPECIFIED),
            path=printable(path),
            size=status.st_size,
            mode=status.st_mode & 0o777,
            permissions=permissions(status.st_mode),
            owner=printable(self._accounts.user_name(owner.uid)),
            group=printable(self._accounts.group_name(owner.gid)),
            modified_time=_timestamp(status.st_mtime_ns),
        )
        if kind == stat.S_IFLNK:
            self._add_target(entry, path)
        elif kind in _TYPES:
            entry.metadata = read_metadata(access, follow=follow)
        return entry

    def _add_target(self, entry: EntryInfo, path: str) -> None:
        entry.is_symlink = True
        try:
            with closing(self._root.locate(path)) as target:
                mode = os.fstat(target).st_mode
                entry.symlink_target = printable(self._root.path_of(target))
        except OSError:
            entry.symlink_target = printable(path)
            entry.type = FileType.UNSPECIFIED
            entry.mode = 0
        else:
            entry.type = _TYPES.get(stat.S_IFMT(mode), FileType.UNSPECIFIED)
            entry.mode = mode & 0o777


def permissions(mode: int) -> str:
    """Format a mode as Go does: `-rw-r--r--`, `dtrwxrwxrwx`, `Lrwxrwxrwx`."""
    kind = stat.S_IFMT(mode)
    marks = _KINDS.get(kind, "")
    if kind == stat.S_IFCHR:
        marks = "Dc"
    special = "".join(
        letter for bit, letter in ((stat.S_ISUID, "u"), (stat.S_ISGID, "g")) if mode & bit
    )
    sticky = "t" if mode & stat.S_ISVTX else ""
    letters = stat.filemode(stat.S_IFREG | (mode & 0o777))[1:]
    return (marks[:1] + special + marks[1:] + sticky or "-") + letters


def printable(text: str) -> str:
    """Make a file name valid UTF-8 for the wire."""
    if text.isascii():
        return text
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _timestamp(nanoseconds: int) -> Timestamp | None:
    seconds, rest = divmod(nanoseconds, _SECOND)
    return Timestamp(seconds=seconds, nanos=rest) if _EARLIEST <= seconds <= _LATEST else None
