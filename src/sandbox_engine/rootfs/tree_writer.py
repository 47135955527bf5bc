import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import Owner
from sandbox_engine.rootfs.root import Root

_CHUNK_BYTES = 1 << 18
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeWriter:
    """Writes files into a sandbox's tree; each atomically replaces a file or link."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def is_directory(self, path: str) -> bool:
        """Return whether the path leads to a directory."""
        try:
            return stat.S_ISDIR(self._root.stat(path).st_mode)
        except OSError:
            return False

    def directory(self, path: str, owner: Owner, mode: int) -> None:
        """Create a directory, or change the mode of an existing one."""
        self._root.make_directories(path, owner)
        with closing(self._root.open_directory(path)) as directory:
            os.fchmod(directory, mode)

    def file(self, path: str, contents: BinaryIO, owner: Owner, mode: int, mtime: float) -> None:
        """Write a regular file; it appears once complete."""
        with (
            self._replacing(path) as (directory, name),
            closing(os.open(name, _NEW_FILE, 0o600, dir_fd=directory)) as descriptor,
        ):
            while chunk := contents.read(_CHUNK_BYTES):
                _write(descriptor, chunk)
            self._root.hand_over(directory, name, owner)
            os.fchmod(descriptor, mode)
            os.utime(descriptor, (mtime, mtime))

    def symlink(self, path: str, target: str, owner: Owner) -> None:
        """Create a symbolic link."""
        with self._replacing(path) as (directory, name):
            os.symlink(target, name, dir_fd=directory)
            self._root.hand_over(directory, name, owner)

    def link(self, path: str, existing: str) -> None:
        """Create a hard link."""
        with (
            self._root.parent(existing) as (source, known),
            self._replacing(path) as (
                directory,
                name,
            ),
        ):
            os.link(known, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)

    @contextmanager
    def _replacing(self, path: str) -> Iterator[tuple[int, str]]:
        with self._root.parent(path) as (directory, name):
            fresh = f".{secrets.token_hex(8)}"
            try:
                yield directory, fresh
                os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
            finally:  # also after renaming a file to itself, which does nothing
                with suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=directory)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
