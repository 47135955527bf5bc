import asyncio
import fcntl
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.trees import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Scratch:
    """A directory for unfinished work.

    Every process that works in it keeps `lock` open. Once the lock can be taken again, all of them
    have ended and the contents are abandoned.
    """

    path: Path
    lock: int

    @classmethod
    def find_free(cls, path: Path) -> Self | None:
        """Take the directory, creating it if missing; None while it is in use."""
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(path, _DIRECTORY)
        except FileNotFoundError:  # discarded by its creator just now
            return None
        if not is_locked(descriptor) or not _is_still(path, descriptor):
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    @classmethod
    def fresh(cls, directory: Path) -> Self:
        """Create a directory with a unique name."""
        while True:
            path = Path(tempfile.mkdtemp(dir=directory))
            if (scratch := cls.find_free(path)) is not None:
                return scratch

    def clear(self) -> None:
        """Remove the contents recursively without following links."""
        for entry in list(self.path.iterdir()):
            remove_tree(self.lock, entry.name)

    def discard(self) -> None:
        """Remove the directory recursively and release it."""
        try:
            self.clear()
            self.path.rmdir()
        finally:
            os.close(self.lock)


def discard_abandoned(directory: Path) -> None:
    """Remove all scratch directories that are not in use."""
    for path in directory.iterdir():
        if (scratch := Scratch.find_free(path)) is not None:
            scratch.discard()


def is_locked(descriptor: int) -> bool:
    """Try to lock an open file or directory."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def run_to_completion(work: Callable[[], None]) -> None:
    """Run in a thread and wait for it even when cancelled: its directory is removed next."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise


def _is_still(path: Path, descriptor: int) -> bool:
    """Return whether the path still refers to the open directory; it may have been discarded."""
    with closing(os.open(path.parent, _DIRECTORY)) as parent:
        try:
            there = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
    return os.path.samestat(there, os.fstat(descriptor))
