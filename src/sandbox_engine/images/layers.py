"""Layers are stored with ownership shifted into the sandboxes' user namespace.

Uid 0 of a layer is `uid_base` on disk, so that a sandbox only needs an overlay mount of the
directory.
"""

import os
import stat
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sandbox_engine.rootfs import descriptors
from sandbox_engine.rootfs.ownership import ID_COUNT, NOBODY
from sandbox_engine.rootfs.trees import TreeCursor

_CAPABILITY = "security.capability"
_CAPABILITY_V3 = 0x03000000


def shift_ownership(layer: Path, *, uid_base: int) -> None:
    """Shift all owners in the tree by `uid_base`; drop device nodes and their privileges."""
    _give(layer, lambda owner: uid_base + _inside(owner), uid_base=uid_base)


def confine_ownership(layer: Path, *, uid_base: int) -> None:
    """Restrict owners in a shifted tree to the sandboxes' ids; drop device nodes."""
    _give(layer, lambda owner: uid_base + _inside(owner - uid_base), uid_base=uid_base)


def _inside(owner: int) -> int:
    return owner if 0 <= owner < ID_COUNT else NOBODY


def _give(layer: Path, new_owner: Callable[[int], int], *, uid_base: int) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with descriptors.closing(os.open(layer, flags)) as root:
        _Handover(new_owner, uid_base).run(root)


def is_whiteout(status: os.stat_result) -> bool:
    """Return whether this is an overlay whiteout, which hides a name of a lower layer."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


class _Handover:
    """Changes the owners of a tree of any depth with one open directory at a time."""

    def __init__(self, new_owner: Callable[[int], int], uid_base: int) -> None:
        self._new_owner = new_owner
        self._uid_base = uid_base
        self._linked: set[tuple[int, int]] = set()

    def run(self, root: int) -> None:
        with closing(TreeCursor(root)) as cursor:
            levels = [self._directory(cursor.descriptor)]
            while levels:
                if levels[-1]:
                    cursor.enter(levels[-1].pop(), across_mounts=False)
                    levels.append(self._directory(cursor.descriptor))
                else:
                    levels.pop()
                    if levels:
                        cursor.leave()

    def _directory(self, descriptor: int) -> list[str]:
        """Change the owners of a directory and its files; returns its subdirectories."""
        status = os.fstat(descriptor)
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in entries]
        below = [name for name in names if self._is_directory(descriptor, name)]
        os.fchown(descriptor, *self._owners(status))
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
        return below

    def _is_directory(self, parent: int, name: str) -> bool:
        status = os.lstat(name, dir_fd=parent)
        if stat.S_ISDIR(status.st_mode):
            return True
        if _is_dropped(status):
            os.unlink(name, dir_fd=parent)
        elif self._is_first_link(status):
            self._file(parent, name, status)
        return False

    def _file(self, parent: int, name: str, status: os.stat_result) -> None:
        owners = self._owners(status)
        if owners == (status.st_uid, status.st_gid):
            return
        path = f"/proc/self/fd/{parent}/{name}"
        capability = _read_capability(path) if stat.S_ISREG(status.st_mode) else None
        os.chown(name, *owners, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            # chown clears these bits
            Path(path).chmod(stat.S_IMODE(status.st_mode))
        if capability is not None:
            shifted = shift_capability(capability, uid_base=self._uid_base)
            os.setxattr(path, _CAPABILITY, shifted, follow_symlinks=False)

    def _is_first_link(self, status: os.stat_result) -> bool:
        if status.st_nlink == 1:
            return True
        inode = (status.st_dev, status.st_ino)
        seen = inode in self._linked
        self._linked.add(inode)
        return not seen

    def _owners(self, status: os.stat_result) -> tuple[int, int]:
        return self._new_owner(status.st_uid), self._new_owner(status.st_gid)


def shift_capability(value: bytes, *, uid_base: int) -> bytes:
    """Bind a file capability to the user namespace whose root is `uid_base`."""
    (magic,) = struct.unpack_from("<I", value)
    sets = value[4:20].ljust(16, b"\0")
    return struct.pack("<I", _CAPABILITY_V3 | magic & 0xFF) + sets + struct.pack("<I", uid_base)


def _read_capability(path: str) -> bytes | None:
    try:
        return os.getxattr(path, _CAPABILITY, follow_symlinks=False)
    except OSError:
        return None


def _is_dropped(status: os.stat_result) -> bool:
    mode = status.st_mode
    if stat.S_ISCHR(mode):
        return not is_whiteout(status)
    return stat.S_ISBLK(mode) or stat.S_ISSOCK(mode)
