"""File operations of the volume contents API; all block."""

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import ID_COUNT, UID_BASE, Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.rootfs.trees import walk
from sandbox_engine.system.errors import InvalidRequest
from sandbox_engine.volumes.entry import Entry
from sandbox_engine.volumes.errors import VolumeFull, VolumePathExists, VolumePathNotFound
from sandbox_engine.volumes.volume import DIRECTORY_MODE

_DEEPEST = 10
_LONGEST_LISTING = 100_000
_FULL = {errno.ENOSPC, errno.EDQUOT}
_PERMISSIONS = 0o7777


def normalize(path: str) -> str:
    """Make a path absolute from the volume's root."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def describe(root: Root, path: str) -> Entry:
    """Describe the entry at a path without following a link."""
    with reported(path), closing(root.locate(path, os.O_NOFOLLOW)) as place:
        return Entry.at(root, path, place)


def list_directory(root: Root, path: str, *, depth: int) -> list[Entry]:
    """List a directory, `depth` levels deep."""
    if depth > _DEEPEST:
        raise InvalidRequest(f"depth must be between 1 and {_DEEPEST}")
    with reported(path):
        if not stat.S_ISDIR(root.stat(path).st_mode):
            raise InvalidRequest(f"Path '{path}' is not a directory")
        with closing(root.open_directory(path)) as directory:
            return list(_entries(root, directory, path, depth=max(depth, 1)))


def make_directory(root: Root, path: str, *, owner: Owner, mode: int, force: bool) -> Entry:
    """Create a directory; `force` also creates parents and accepts an existing one."""
    check_owner_and_mode(owner, mode)
    with reported(path):
        if path == "/":
            if not force:
                raise VolumePathExists(path)
            return describe(root, path)
        if force:
            root.make_directories(posixpath.dirname(path), owner, mode=DIRECTORY_MODE)
        try:
            root.make_directory(path, owner, mode=mode)
        except FileExistsError:
            if not force or not stat.S_ISDIR(root.stat(path).st_mode):
                raise
    return describe(root, path)


def change(root: Root, path: str, *, uid: int | None, gid: int | None, mode: int | None) -> Entry:
    """Change the owner and mode of an entry."""
    check_owner_and_mode(Owner(uid or 0, gid or 0), mode or 0)
    with reported(path), closing(root.locate(path)) as place:
        there = os.fstat(place)
        if not (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
            raise InvalidRequest(f"Path '{path}' is neither a file nor a directory")
        # An O_PATH descriptor can only be changed by its name in /proc.
        access = Path(f"/proc/self/fd/{place}")
        if uid is not None or gid is not None:
            os.chown(access, _outside(uid), _outside(gid))
        if mode is not None:
            access.chmod(mode)
    return describe(root, path)


def remove(root: Root, path: str) -> None:
    """Remove a file, or a directory recursively."""
    if path == "/":
        raise InvalidRequest("The root of a volume cannot be removed")
    describe(root, path)
    with reported(path):
        root.remove(path)


def check_owner_and_mode(owner: Owner, mode: int) -> None:
    """Reject invalid ids and modes."""
    if not all(0 <= number < ID_COUNT for number in owner):
        raise InvalidRequest(f"uid and gid must be between 0 and {ID_COUNT - 1}")
    if not 0 <= mode <= _PERMISSIONS:
        raise InvalidRequest(f"mode must be between 0 and {_PERMISSIONS} (0o{_PERMISSIONS:o})")


@contextmanager
def reported(path: str) -> Iterator[None]:
    """Convert errors of the file system to the API's."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise VolumePathNotFound(path) from error
    except FileExistsError as error:
        raise VolumePathExists(path) from error
    except OSError as error:
        if error.errno in _FULL:
            raise VolumeFull from error
        raise InvalidRequest(f"Path '{path}': {error.strerror}") from error


def _entries(root: Root, directory: int, path: str, *, depth: int) -> Iterator[Entry]:
    prefix = path.rstrip("/") + "/"
    found = walk(directory, depth=depth, admit=root.admit)
    for number, (parent, name, below) in enumerate(found):
        if number == _LONGEST_LISTING:
            raise InvalidRequest(f"Path '{path}' has too many entries to list at once")
        with suppress(FileNotFoundError):
            yield Entry.within(root, prefix + below, parent, name)


def _outside(inside: int | None) -> int:
    return -1 if inside is None else UID_BASE + inside
