"""Layers are stored with ownership shifted into the sandboxes' user namespace.

Uid 0 of a layer is `uid_base` on disk, so that an overlay mount of its directory is all a sandbox needs.
"""

import os
import stat
import struct
from pathlib import Path

_NOBODY = 65534
_IDS = 65536
_CAPABILITY = "security.capability"
_CAPABILITY_V3 = 0x03000000


def shift_ownership(layer: Path, *, uid_base: int) -> None:
    """Move every owner in the tree up by `uid_base` and drop what could reach a device."""
    root = os.open(layer, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _Shift(uid_base).directory(root)
    finally:
        os.close(root)


def is_whiteout(status: os.stat_result) -> bool:
    """Tell whether this is the overlay's mark for a name that a lower layer has and this one hides."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


class _Shift:
    def __init__(self, uid_base: int) -> None:
        self._uid_base = uid_base
        self._linked: set[tuple[int, int]] = set()

    def directory(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            self._entry(descriptor, name)
        os.fchown(descriptor, self._shifted(status.st_uid), self._shifted(status.st_gid))
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _entry(self, parent: int, name: str) -> None:
        status = os.lstat(name, dir_fd=parent)
        if stat.S_ISDIR(status.st_mode):
            self._subdirectory(parent, name)
        elif _is_dropped(status):
            os.unlink(name, dir_fd=parent)
        elif self._is_first_link(status):
            self._file(parent, name, status)

    def _subdirectory(self, parent: int, name: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(name, flags, dir_fd=parent)
        try:
            self.directory(descriptor)
        finally:
            os.close(descriptor)

    def _file(self, parent: int, name: str, status: os.stat_result) -> None:
        path = f"/proc/self/fd/{parent}/{name}"
        capability = _read_capability(path) if stat.S_ISREG(status.st_mode) else None
        os.chown(
            name,
            self._shifted(status.st_uid),
            self._shifted(status.st_gid),
            dir_fd=parent,
            follow_symlinks=False,
        )
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            # chown has taken these bits away
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

    def _shifted(self, owner: int) -> int:
        return self._uid_base + (owner if owner < _IDS else _NOBODY)


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
