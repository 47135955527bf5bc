from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from sandbox_engine.envd.protocol.entries import EntryReader
from sandbox_engine.envd.protocol.error_texts import reason
from sandbox_engine.rootfs.accounts import InvalidPath, UnknownUser, resolve_path
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.filesystems import RefusedFile, is_network
from sandbox_engine.rootfs.trees import walk

if TYPE_CHECKING:
    from e2b.envd.filesystem.filesystem_pb import EntryInfo

    from sandbox_engine.sandboxes.sandbox import Sandbox

# A listing is built in memory: the limit, and the approximate size of an entry besides the text of
# its path.
_LISTING_BYTES = 128 << 20
_ENTRY_COST = 600


class UserFiles:
    """File operations of one user in a sandbox; all methods block."""

    def __init__(self, sandbox: Sandbox, username: str | None) -> None:
        self.root = sandbox.root
        self._workdir = sandbox.default_workdir
        accounts = sandbox.accounts
        try:
            name = sandbox.default_user if username is None else username
            self._account = accounts.find(name)
        except UnknownUser as error:
            which = "default user" if username is None else "username"
            raise ConnectError(Code.UNAUTHENTICATED, f"invalid {which}: '{error.name}'") from error
        self.entries = EntryReader(self.root, accounts)

    def stat(self, path: str) -> EntryInfo:
        """Describe the entry at a path."""
        path = self._resolve(path)
        with _reported("error getting file info"):
            try:
                return self.entries.at(path)
            except FileNotFoundError as error:
                text = f"file not found: lstat {path}: {reason(error)}"
                raise ConnectError(Code.NOT_FOUND, text) from error

    def make_directory(self, path: str) -> EntryInfo:
        """Create a directory with its parents; it must not exist."""
        path = self._resolve(path)
        with _reported("error getting file info"), suppress(FileNotFoundError):
            if stat.S_ISDIR(self.root.stat(path).st_mode):
                raise ConnectError(Code.ALREADY_EXISTS, f"directory already exists: {path}")
            raise ConnectError(
                Code.INVALID_ARGUMENT, f"path already exists but it is not a directory: {path}"
            )
        with _reported("error creating directory"):
            self.root.make_directories(path, self._account.owner)
            return self.entries.at(path)

    def move(self, source: str, destination: str) -> EntryInfo:
        """Rename an entry, replacing the target."""
        source, destination = self._resolve(source), self._resolve(destination)
        with _reported("error ensuring directories"):
            self.root.make_directories(posixpath.dirname(destination), self._account.owner)
        with _reported("error renaming"):
            try:
                self.root.rename(source, destination)
            except FileNotFoundError as error:
                text = f"source file not found: rename {source} {destination}: {reason(error)}"
                raise ConnectError(Code.NOT_FOUND, text) from error
            return self.entries.at(destination)

    def remove(self, path: str) -> None:
        """Remove an entry recursively; no error if it does not exist."""
        path = self._resolve(path)
        with _reported("error removing file or directory"), suppress(FileNotFoundError):
            self.root.remove(path)

    def list(self, path: str, *, depth: int, limit: int = _LISTING_BYTES) -> list[EntryInfo]:
        """List a directory, `depth` levels deep, in about `limit` bytes at most."""
        path = self._resolve(path)
        with _reported(f"error reading directory {path}"):
            if not stat.S_ISDIR(self._look(path, f"path not found: lstat {path}").st_mode):
                raise ConnectError(Code.INVALID_ARGUMENT, f"path is not a directory: {path}")
            with closing(self.root.open_directory(path)) as directory:
                return list(self._entries(directory, path, depth=depth, limit=limit))

    def find_watched(self, path: str, *, allow_network: bool) -> tuple[str, str]:
        """Check a directory to watch; returns its path and its resolved path."""
        path = self._resolve(path)
        with _reported("error getting file info"):
            if not stat.S_ISDIR(self._look(path, f"path {path} not found: lstat {path}").st_mode):
                # The formatting error at the end is E2B's.
                text = f"path {path} not a directory: %!w(<nil>)"
                raise ConnectError(Code.INVALID_ARGUMENT, text)
            with closing(self.root.open_directory(path)) as directory:
                if is_network(directory) and not allow_network:
                    text = f"cannot watch path on network filesystem: {path}"
                    raise ConnectError(Code.INVALID_ARGUMENT, text)
                return path, self.root.path_of(directory)

    def _resolve(self, path: str) -> str:
        try:
            return resolve_path(path, self._account, workdir=self._workdir)
        except InvalidPath as error:
            raise ConnectError(Code.INVALID_ARGUMENT, str(error)) from error

    def _look(self, path: str, missing: str) -> os.stat_result:
        try:
            return self.root.stat(path)
        except FileNotFoundError as error:
            raise ConnectError(Code.NOT_FOUND, f"{missing}: {reason(error)}") from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            text = f'cyclic symlink or chain >255 links at "{path}"'
            raise ConnectError(Code.FAILED_PRECONDITION, text) from error

    def _entries(self, directory: int, path: str, *, depth: int, limit: int) -> Iterator[EntryInfo]:
        prefix = path.rstrip("/") + "/"
        cost = 0
        for parent, name, below in walk(directory, depth=depth, admit=self.root.admit):
            with suppress(FileNotFoundError):
                yield self.entries.within(parent, name, prefix + below)
            cost += _ENTRY_COST + len(prefix) + len(below)
            if cost > limit:
                text = f"{path} has too many entries to list at once; list less of it"
                raise ConnectError(Code.RESOURCE_EXHAUSTED, text)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Convert errors of the file system to E2B's codes and messages."""
    try:
        yield
    except RefusedFile as error:
        raise ConnectError(Code.INVALID_ARGUMENT, f"{what}: {reason(error)}") from error
    except OSError as error:
        raise ConnectError(Code.INTERNAL, f"{what}: {reason(error)}") from error
