"""Writes a complete body to a file of a sandbox; failures leave the old content."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sandbox_engine.envd.protocol.error_texts import reason
from sandbox_engine.envd.protocol.metadata import MetadataNotStored, replace_metadata
from sandbox_engine.envd.protocol.responses import FileError
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.filesystems import RefusedFile, require_data
from sandbox_engine.system.syscalls import FALLOC_FL_KEEP_SIZE, fallocate

if TYPE_CHECKING:
    from sandbox_engine.envd.files.body import Spool
    from sandbox_engine.rootfs.accounts import Account
    from sandbox_engine.rootfs.root import Root

_FULL = {errno.ENOSPC, errno.EDQUOT}
NO_ROOM = "not enough disk space available"


def room_for(root: Root, path: str) -> int:
    """Return the maximum size of a file at `path`; rejects anything but regular files."""
    with reported("error getting file info"):
        try:
            with closing(root.locate(path)) as place:
                require_data(place)
                status = os.fstat(place)
                if stat.S_ISDIR(status.st_mode):
                    raise FileError(400, f"path is a directory: {path}")
                return _free(place) + status.st_blocks * 512
        except FileNotFoundError:
            pass
        while True:
            path = posixpath.dirname(path)
            with suppress(FileNotFoundError), closing(root.locate(path)) as place:
                require_data(place)
                return _free(place)


def store(
    root: Root, path: str, account: Account, body: Spool, metadata: Mapping[str, str]
) -> None:
    """Write a body into the file at `path` in place, keeping its inode.

    Hard links, open readers and watchers see the new content, as with E2B.
    """
    with reported("error ensuring directories"):
        root.make_directories(posixpath.dirname(path), account.owner)
    with reported("error opening file", full="not enough inodes available"):
        descriptor, is_new = root.open_for_writing(path, account.owner)
    with closing(descriptor):
        try:
            with reported("error writing file", full=no_room_for(body.size)):
                _reserve(descriptor, body.size)
                if metadata or not is_new:
                    replace_metadata(descriptor, metadata)
                if not is_new:
                    root.give(descriptor, account.owner)
                body.copy_to(descriptor)
                os.ftruncate(descriptor, body.size)
        except FileError:
            if is_new:
                with suppress(OSError):
                    root.remove_file(path, descriptor)
            raise


@contextmanager
def reported(what: str, *, full: str = NO_ROOM) -> Iterator[None]:
    """Convert errors of the file system to E2B's statuses and messages."""
    try:
        yield
    except MetadataNotStored as error:
        raise FileError(507, f"not enough space for file metadata: {error}") from error
    except RefusedFile as error:
        raise FileError(400, f"{what}: {reason(error)}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise FileError(507, full) from error
        raise FileError(500, f"{what}: {reason(error)}") from error


def no_room_for(size: int) -> str:
    return f"attempted to write {size} bytes: {NO_ROOM}"


def _free(place: int) -> int:
    status = os.fstatvfs(place)
    return status.f_bfree * status.f_frsize


def _reserve(descriptor: int, size: int) -> None:
    """Reserve disk space, so that writing cannot fail half-way."""
    before = os.fstat(descriptor).st_size
    try:
        if size:
            fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, size)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return
        # Truncating to the current size frees the space reserved behind it.
        os.ftruncate(descriptor, before)
        raise
