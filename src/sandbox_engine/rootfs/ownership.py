import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sandbox_engine.system.syscalls import set_file_ids

# Far above ids of accounts, their subordinate ranges (Debian gives the first user 100000), and
# ranges that systemd uses for services and containers.
UID_BASE = 0x7000_0000
ID_COUNT = 65_536
NOBODY = 65_534  # how unmapped ids appear in the sandbox


class Owner(NamedTuple):
    """Owner of a file, in the sandbox's ids."""

    uid: int
    gid: int


class IdRange:
    """The host's ids that belong to sandboxes, for users and groups alike."""

    def __init__(self, base: int) -> None:
        self._base = base

    def owner(self, status: os.stat_result) -> Owner:
        """Return a file's owner as seen in the sandbox."""
        return Owner(self._inside(status.st_uid), self._inside(status.st_gid))

    def give(self, descriptor: int, owner: Owner) -> None:
        """Change the owner of an open file or directory."""
        os.fchown(descriptor, *self._outside(owner))

    def give_entry(self, directory: int, name: str, owner: Owner) -> None:
        """Change the owner of a directory's entry, without following links."""
        uid, gid = self._outside(owner)
        os.chown(name, uid, gid, dir_fd=directory, follow_symlinks=False)

    @contextmanager
    def acting_as(self, owner: Owner) -> Iterator[None]:
        """Make this thread create files with this owner."""
        set_file_ids(self._base + owner.uid, self._base + owner.gid)
        try:
            yield
        finally:
            set_file_ids(os.geteuid(), os.getegid())

    def may_change(self, status: os.stat_result) -> bool:
        """Return whether the sandbox's root may change a file."""
        return self._has(status.st_uid) and self._has(status.st_gid)

    def may_read(self, status: os.stat_result) -> bool:
        """Return whether the sandbox's root may read a file, as root or as anybody."""
        return self.may_change(status) or bool(status.st_mode & stat.S_IROTH)

    def _outside(self, owner: Owner) -> tuple[int, int]:
        if not (0 <= owner.uid < ID_COUNT and 0 <= owner.gid < ID_COUNT):
            raise OSError(errno.EINVAL, "the owner is not mapped in the sandbox")
        return self._base + owner.uid, self._base + owner.gid

    def _inside(self, host_id: int) -> int:
        return host_id - self._base if self._has(host_id) else NOBODY

    def _has(self, host_id: int) -> bool:
        return 0 <= host_id - self._base < ID_COUNT
