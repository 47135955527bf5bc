"""Which file systems the host reads and writes on a sandbox's behalf.

The kernel's own (proc, sysfs, cgroup, debugfs, mqueue, ...) judge the one who asks: there the
host's root may what the sandbox's root may not. So those that hold data are listed, and every
other is refused.
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
    """Something that the host does not touch for a sandbox."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EINVAL, reason)


class KernelFile(RefusedFile):
    """A file of the kernel's own, which only the sandbox's own users may judge."""


def require_data(descriptor: int) -> None:
    """Refuse a file or directory of a file system that holds no data."""
    if filesystem_type(descriptor) not in _DATA:
        raise KernelFile("it is not available through the files API; run a command to read it")


def is_network(descriptor: int) -> bool:
    """Tell whether changes may be made elsewhere, so that watching would miss them."""
    return filesystem_type(descriptor) in _NETWORK
