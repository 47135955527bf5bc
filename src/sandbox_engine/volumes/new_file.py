import os
import posixpath
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE, IdRange, Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import InvalidRequest
from sandbox_engine.volumes.content import check_owner_and_mode, describe, reported
from sandbox_engine.volumes.entry import Entry
from sandbox_engine.volumes.errors import VolumeFull, VolumePathExists
from sandbox_engine.volumes.volume import DIRECTORY_MODE

_SETTLED_AT_ONCE = 16 << 20


class NewFile:
    """A file without a name until it is complete; all methods block.

    Readers in any sandbox see the old file or the new one. A file that is never published leaves
    nothing behind, even after a crash of the machine.
    """

    def __init__(
        self,
        root: Root,
        path: str,
        *,
        owner: Owner,
        mode: int,
        force: bool,
        disk_room: Callable[[], int],
    ) -> None:
        check_owner_and_mode(owner, mode)
        self._disk_room = disk_room
        self._unsettled = 0
        self._root, self._shown, self._force = root, path, force
        self._owner, self._mode = owner, mode
        with reported(path):
            self._path = self._target()
            self._directory = self._open_directory()
            try:
                self._file = os.open(
                    ".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._directory
                )
            except OSError:
                os.close(self._directory)
                raise

    def write(self, data: bytes) -> None:
        """Append data, if the machine has space."""
        if self._unsettled + len(data) > self._disk_room():
            raise VolumeFull("on the machine")
        with reported(self._shown), memoryview(data) as view:
            written = 0
            while written < len(view):
                written += os.write(self._file, view[written:])
            self._settle(len(data))

    def publish(self) -> Entry:
        """Flush the file and give it its name."""
        with reported(self._shown):
            IdRange(UID_BASE).give(self._file, self._owner)
            os.fchmod(self._file, self._mode)
            os.fsync(self._file)
            self._name()
            os.fsync(self._directory)
        return describe(self._root, self._shown)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._directory)

    def _settle(self, written: int) -> None:
        """Flush periodically, so that the machine's disk usage is up to date."""
        self._unsettled += written
        if self._unsettled >= _SETTLED_AT_ONCE:
            os.fdatasync(self._file)
            self._unsettled = 0

    def _target(self) -> str:
        """Resolve the path to replace: the target of a link, if it is a file."""
        with suppress(FileNotFoundError), closing(self._root.locate(self._shown)) as place:
            if not self._force:
                raise VolumePathExists(self._shown)
            if not stat.S_ISREG(os.fstat(place).st_mode):
                raise InvalidRequest(f"Path '{self._shown}' is not a file")
            return self._root.path_of(place)
        return self._shown

    def _open_directory(self) -> int:
        directory = posixpath.dirname(self._path)
        if self._force:
            self._root.make_directories(directory, self._owner, mode=DIRECTORY_MODE)
        return self._root.open_directory(directory)

    def _name(self) -> None:
        name = posixpath.basename(self._path)
        try:
            self._link(name)
        except FileExistsError:
            if not self._force:
                raise
            self._replace(name)

    def _replace(self, name: str) -> None:
        passing = f".{secrets.token_hex(8)}"
        self._link(passing)
        try:
            os.rename(passing, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            os.unlink(passing, dir_fd=self._directory)
            raise

    def _link(self, name: str) -> None:
        os.link(f"/proc/self/fd/{self._file}", name, dst_dir_fd=self._directory)
