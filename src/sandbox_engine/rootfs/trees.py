import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from sandbox_engine.system.syscalls import RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, openat2

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_DIRECTORY = {errno.ENOTDIR, errno.ELOOP}
_GONE = _NOT_A_DIRECTORY | {errno.ENOENT}
_PATH_MAX = 4096
_NAMES_AT_ONCE = 10_000


class TreeMoved(OSError):
    """A directory was moved during an operation below it."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "it was moved during the operation")


class TreeCursor:
    """A position in a directory tree of any depth, held by one descriptor.

    Going up by `..` is verified: a directory that was moved would otherwise lead into another tree.
    """

    def __init__(self, directory: int) -> None:
        self.descriptor = os.dup(directory)
        self._trail = [_identity(self.descriptor)]
        self._names: list[str] = []

    @property
    def depth(self) -> int:
        return len(self._names)

    def enter(self, name: str, *, across_mounts: bool) -> None:
        """Enter the directory `name`, which must not be a link."""
        resolve = RESOLVE_NO_SYMLINKS | (0 if across_mounts else RESOLVE_NO_XDEV)
        self._move_to(openat2(self.descriptor, name, _DIRECTORY, resolve=resolve))
        self._trail.append(_identity(self.descriptor))
        self._names.append(name)

    def leave(self) -> str:
        """Go to the parent; returns the name of the directory left."""
        parent = os.open("..", _DIRECTORY, dir_fd=self.descriptor)
        if _identity(parent) != self._trail[-2]:
            os.close(parent)
            raise TreeMoved
        self._move_to(parent)
        self._trail.pop()
        return self._names.pop()

    def close(self) -> None:
        os.close(self.descriptor)

    def _move_to(self, descriptor: int) -> None:
        os.close(self.descriptor)
        self.descriptor = descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def walk(
    directory: int, *, depth: int, admit: Callable[[int], None]
) -> Iterator[tuple[int, str, str]]:
    """Yield entries down to `depth` levels: the directory's descriptor, name and path.

    A directory precedes its contents, names are sorted, links are not followed, and directories for
    which `admit` raises OSError are skipped. A descriptor is valid until the next entry is
    requested.
    """
    with closing(TreeCursor(directory)) as cursor:
        levels = [("", _entries(cursor.descriptor))]
        while levels:
            prefix, entries = levels[-1]
            if not entries:
                levels.pop()
                if cursor.depth:
                    cursor.leave()
                continue
            name, is_directory = entries.pop()
            path = prefix + name
            yield cursor.descriptor, name, path
            deeper = is_directory and cursor.depth + 1 < depth and len(path) < _PATH_MAX
            if deeper and _has_entered(cursor, name, admit):
                levels.append((f"{path}/", _entries(cursor.descriptor)))


def _entries(directory: int) -> list[tuple[str, bool]]:
    """List names and whether they are directories, in reverse order."""
    with os.scandir(directory) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    return sorted(entries, reverse=True)


def _has_entered(cursor: TreeCursor, name: str, admit: Callable[[int], None]) -> bool:
    try:
        cursor.enter(name, across_mounts=True)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return False
    try:
        admit(cursor.descriptor)
    except OSError:
        cursor.leave()
        return False
    return True


def remove_tree(directory: int, name: str) -> None:
    """Remove `name` recursively; raises the first error after removing everything else.

    Links are not followed. Mount points are kept: seen from the host, a sandbox's mount point is an
    ordinary directory, and removing it would unmount it inside.
    """
    removal = _Removal(directory)
    with closing(removal.cursor):
        removal.run(name)
    if removal.failure is not None:
        raise removal.failure


class _Names(NamedTuple):
    """The next entries of a directory to remove, and whether they are all."""

    names: list[str]
    is_all: bool


class _Removal:
    def __init__(self, directory: int) -> None:
        self.cursor = TreeCursor(directory)
        self.failure: OSError | None = None

    def run(self, name: str) -> None:
        levels = [_Names([name], is_all=True)]
        while levels:
            names, is_all = levels[-1]
            if names:
                if not self._remove_file(names.pop()):
                    levels.append(self._read())
            elif is_all or self.failure is not None:
                levels.pop()
                if self.cursor.depth:
                    self._attempt(os.rmdir, self.cursor.leave())
            else:
                levels[-1] = self._read()

    def _read(self) -> _Names:
        with os.scandir(self.cursor.descriptor) as found:
            names = [entry.name for entry in islice(found, _NAMES_AT_ONCE)]
        return _Names(names, is_all=len(names) < _NAMES_AT_ONCE)

    def _remove_file(self, name: str) -> bool:
        """Remove a non-directory; directories are entered instead."""
        try:
            self.cursor.enter(name, across_mounts=False)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                self._attempt(os.unlink, name)
            else:
                self._note(_refusal(error))
            return True
        return False

    def _attempt(self, remove: Callable[..., None], name: str) -> None:
        try:
            remove(name, dir_fd=self.cursor.descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(error)

    def _note(self, failure: OSError) -> None:
        self.failure = self.failure or failure


def require_no_mount(directory: int, name: str) -> None:
    """Reject mount points, as the kernel does inside the sandbox."""
    try:
        os.close(openat2(directory, name, os.O_PATH | os.O_NOFOLLOW, resolve=RESOLVE_NO_XDEV))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _refusal(error) from error


def _refusal(error: OSError) -> OSError:
    if error.errno == errno.EXDEV:
        return OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    return error
