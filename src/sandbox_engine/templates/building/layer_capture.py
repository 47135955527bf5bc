"""Turns the changes of a step, in the overlay's upper directory, into a layer.

Whiteouts and renames are kept. Marks that tie files to the layers they were copied up from are
dropped: elsewhere those are other files.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import closing as closing_cursor
from pathlib import Path

from sandbox_engine.container.oci_config import INIT_PATH
from sandbox_engine.container.search_path import PROFILE
from sandbox_engine.images.layers import is_whiteout
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.rootfs.trees import TreeCursor
from sandbox_engine.system.sparse_files import copy_data

# The engine's own files and the directories that contain them in every sandbox.
_PROFILES, _, _PROFILE = PROFILE.rpartition("/")
_ENGINES = {
    "": {INIT_PATH.lstrip("/")},
    "run": {"e2b"},
    "etc": {"hosts", "hostname", "resolv.conf"},
    _PROFILES: {_PROFILE},
}
_PLAIN_DIRECTORY = (stat.S_IFDIR | 0o755, UID_BASE, UID_BASE)

_OVERLAY_MARK = "trusted.overlay."
_KEPT_MARKS = {"trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.metacopy"}
_LONGEST_LINK_PATH = 4000

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def has_changes(upper: Path) -> bool:
    """Return whether anything except the engine's own files was changed."""
    with closing(os.open(upper, _DIRECTORY)) as descriptor:
        return bool(_changed_names(descriptor, []))


def copy_changes(upper: Path, layer: Path) -> None:
    """Copy the changes into an empty directory that becomes a layer."""
    with closing(os.open(upper, _DIRECTORY)) as source, closing(os.open(layer, _DIRECTORY)) as copy:
        _Copy(source, copy).run()


class _Copy:
    def __init__(self, source: int, layer: int) -> None:
        self._source = TreeCursor(source)
        self._target = TreeCursor(layer)
        self._layer = layer
        self._parents: list[str] = []
        self._links: dict[int, str] = {}

    def run(self) -> None:
        with closing_cursor(self._source), closing_cursor(self._target):
            levels = [_changed_names(self._source.descriptor, self._parents)]
            while levels:
                if not levels[-1]:
                    levels.pop()
                    self._leave()
                elif self._entry(name := levels[-1].pop()):
                    self._enter(name)
                    levels.append(_changed_names(self._source.descriptor, self._parents))

    def _enter(self, name: str) -> None:
        self._parents.append(name)
        self._source.enter(name, across_mounts=False)
        self._target.enter(name, across_mounts=False)

    def _leave(self) -> None:
        if self._parents:
            _copy_attributes(self._source.descriptor, self._target.descriptor)
            self._source.leave()
            self._target.leave()
            self._parents.pop()

    def _entry(self, name: str) -> bool:
        """Copy one entry; returns whether it is a directory to enter."""
        source, target = self._source.descriptor, self._target.descriptor
        status = os.lstat(name, dir_fd=source)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            os.mkdir(name, 0o700, dir_fd=target)
        elif kind == stat.S_IFREG:
            self._file(name, status)
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            _give(name, target, status)
        elif kind == stat.S_IFIFO:
            os.mknod(name, stat.S_IFIFO | 0o600, dir_fd=target)
            _give(name, target, status)
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=target)
        elif is_whiteout(status):
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=target)
        return kind == stat.S_IFDIR

    def _file(self, name: str, status: os.stat_result) -> None:
        target = self._target.descriptor
        if (first := self._links.get(status.st_ino)) is not None:
            os.link(first, name, src_dir_fd=self._layer, dst_dir_fd=target, follow_symlinks=False)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        read = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            closing(os.open(name, read, dir_fd=self._source.descriptor)) as reader,
            closing(os.open(name, flags, 0o600, dir_fd=target)) as writer,
        ):
            copy_data(reader, writer)
            _copy_attributes(reader, writer)
        path = "/".join((*self._parents, name))
        if status.st_nlink > 1 and len(os.fsencode(path)) < _LONGEST_LINK_PATH:
            self._links[status.st_ino] = path


def _changed_names(directory: int, parents: Sequence[str]) -> list[str]:
    names = _names(directory) - _ENGINES.get("/".join(parents), set())
    bare = {name for name in names if _is_bare(directory, (*parents, name))}
    return sorted(names - bare, reverse=True)


def _names(directory: int) -> set[str]:
    with os.scandir(directory) as entries:
        return {entry.name for entry in entries}


def _is_bare(parent: int, path: Sequence[str]) -> bool:
    """Return whether a directory only contains files of the engine."""
    if "/".join(path) not in _ENGINES:
        return False
    status = os.lstat(path[-1], dir_fd=parent)
    if (status.st_mode, status.st_uid, status.st_gid) != _PLAIN_DIRECTORY:
        return False
    with closing(os.open(path[-1], _DIRECTORY, dir_fd=parent)) as directory:
        is_marked = not _KEPT_MARKS.isdisjoint(os.listxattr(directory))
        return not is_marked and not _changed_names(directory, path)


def _copy_attributes(source: int, target: int) -> None:
    status = os.fstat(source)
    os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    # After the owner: changing it clears capabilities.
    for name in os.listxattr(source):
        if not name.startswith(_OVERLAY_MARK) or name in _KEPT_MARKS:
            os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _give(name: str, directory: int, status: os.stat_result) -> None:
    os.chown(name, status.st_uid, status.st_gid, dir_fd=directory, follow_symlinks=False)
    times = (status.st_atime_ns, status.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=directory, follow_symlinks=False)
