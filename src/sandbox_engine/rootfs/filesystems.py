"""File systems that the host reads and writes for a sandbox.

Kernel file systems (proc, sysfs, cgroup, debugfs, mqueue, ...) check the caller's credentials: the
host's root may do what the sandbox's root may not. Only file systems with data are allowed.
"""

import errno

from sandbox_engine.system.syscalls import filesystem_type

_NETWORK = {
    0x6969,  # nfs
    0xFF534D42,  # cifs
    0xFE534D42,  # smb2
    0x65735546,  # fuse
    0x01021997,  # 9p
    0x00C36400,  # ceph
}
_DATA = _NETWORK | {
    0x794C7630,  # overlay
    0x01021994,  # tmpfs
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # xfs
    0x9123683E,  # btrfs
    0xF2F52010,  # f2fs
    0x2FC12FC1,  # zfs
    0xCA451A4E,  # bcachefs
    0xE0F5E1E2,  # erofs
    0x73717368,  # squashfs
}


class RefusedFile(OSError):
    """A file that the host does not access for a sandbox."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EINVAL, reason)


class KernelFile(RefusedFile):
    """A file of a kernel file system, which checks the caller's credentials."""


def require_data(descriptor: int) -> None:
    """Reject files and directories on file systems without data."""
    if filesystem_type(descriptor) not in _DATA:
        raise KernelFile("it is not available through the files API; run a command to read it")


def is_network(descriptor: int) -> bool:
    """Return whether other machines may change files, which inotify does not report."""
    return filesystem_type(descriptor) in _NETWORK
