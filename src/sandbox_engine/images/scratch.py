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
    """A directory for what is unfinished.

    Whoever works in it holds `lock` open, each process of theirs too: once it can be locked again,
    all of them have ended and what is left in it is nobody's.
    """

    path: Path
    lock: int

    @classmethod
    def find_free(cls, path: Path) -> Self | None:
        """Take the directory, made where it is missing; None while somebody works in it."""
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(path, _DIRECTORY)
        except FileNotFoundError:  # discarded by its maker just now
            return None
        if not is_locked(descriptor) or not _is_still(path, descriptor):
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    @classmethod
    def fresh(cls, directory: Path) -> Self:
        """Make one that nobody else will ask for."""
        while True:
            path = Path(tempfile.mkdtemp(dir=directory))
            if (scratch := cls.find_free(path)) is not None:
                return scratch

    def clear(self) -> None:
        """Remove all that is in it, however deep; no link is followed."""
        for entry in list(self.path.iterdir()):
            remove_tree(self.lock, entry.name)

    def discard(self) -> None:
        """Remove it with all that is in it, and let go of it."""
        try:
            self.clear()
            self.path.rmdir()
        finally:
            os.close(self.lock)


def discard_abandoned(directory: Path) -> None:
    """Remove each scratch directory that nobody works in any more."""
    for path in directory.iterdir():
        if (scratch := Scratch.find_free(path)) is not None:
            scratch.discard()


def is_locked(descriptor: int) -> bool:
    """Lock an open file or directory, unless somebody else has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def to_its_end(work: Callable[[], None]) -> None:
    """Run in a thread, and wait for it even when cancelled: what it works on is removed next."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise


def _is_still(path: Path, descriptor: int) -> bool:
    """Tell whether the path leads to what is open; it may have been discarded meanwhile."""
    with closing(os.open(path.parent, _DIRECTORY)) as parent:
        try:
            there = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
    return os.path.samestat(there, os.fstat(descriptor))
