from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections import deque
from collections.abc import Callable, Iterator

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from sandbox_engine.envd.filesystem.inotify import (
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_ISDIR,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    Event,
    Inotify,
    TooManyWatches,
)
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.filesystems import RefusedFile
from sandbox_engine.rootfs.root import Root

# Reasons why a directory that existed a moment ago cannot be opened.
_PASSED_OVER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES}


class WatchQuota:
    """A limit shared by a sandbox's watchers."""

    def __init__(self, limit: int, code: Code, refusal: str) -> None:
        self._left = limit
        self._code = code
        self._refusal = refusal
        self._lock = threading.Lock()

    def take(self, count: int = 1) -> None:
        """Take from the limit, or raise."""
        with self._lock:
            if count > self._left:
                raise ConnectError(self._code, self._refusal)
            self._left -= count

    def give(self, count: int = 1) -> None:
        """Return to the limit."""
        with self._lock:
            self._left += count


class WatchedDirectory:
    """A watched directory and its position below the requested one."""

    __slots__ = ("_tree", "children", "is_moving", "name", "parent", "reported", "watch")

    def __init__(self, tree: WatchedTree, parent: WatchedDirectory | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.children: dict[str, WatchedDirectory] = {}
        self.watch: int | None = None
        self.is_moving = False
        # Entries reported as created by the first scan: the kernel's own event may follow.
        self.reported: set[str] = set()
        self._tree = tree

    @property
    def path(self) -> str:
        """Return the path relative to the requested directory, which is `.` itself."""
        names: list[str] = []
        directory = self
        while directory.parent is not None:
            names.append(directory.name)
            directory = directory.parent
        return "/".join(reversed(names)) or "."

    def below(self, name: str) -> str:
        """Return the relative path of an entry."""
        return name if self.parent is None else f"{self.path}/{name}"

    def happened(self, event: Event) -> None:
        self._tree.notice(self, event)

    def lost(self) -> None:
        self._tree.lose()


def join(path: str, below: str) -> str:
    """Join a directory's path and a relative path, which may be `.`."""
    return posixpath.normpath(f"{path}/{below}")


class WatchedTree:
    """The watched directories of one watcher; all methods but `notice` and `lose` run in a thread.

    No directory is kept open: that would hide its removal and keep a deleted sandbox mounted.
    """

    def __init__(
        self,
        root: Root,
        path: str,
        inotify: Inotify,
        quota: WatchQuota,
        *,
        recursive: bool,
        notice: Callable[[WatchedDirectory, Event], None],
        lose: Callable[[], None],
    ) -> None:
        self.notice = notice
        self.lose = lose
        self._root = root
        self._path = path
        self._inotify = inotify
        self._quota = quota
        self._recursive = recursive
        self._top = WatchedDirectory(self, None, "")
        self._moving: dict[int, WatchedDirectory] = {}

    def start(self) -> None:
        """Watch the directory, and its subdirectories if recursive."""
        deque(self._observe(self._top, report=False), maxlen=0)
        if self._top.watch is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def close(self) -> None:
        """Remove all watches."""
        self._forget(self._top)
        for directory in self._moving.values():
            self._forget(directory)

    def follow(self, directory: WatchedDirectory, event: Event) -> Iterator[str]:
        """Follow changes of directories; yields entries created meanwhile."""
        if not event.name:
            self._follow_itself(directory, event)
        elif event.mask & IN_ISDIR and self._recursive:
            yield from self._follow_child(directory, event)

    def _follow_itself(self, directory: WatchedDirectory, event: Event) -> None:
        # The kernel reports a move as from, to, self: not found at `self`, it has left the tree.
        is_gone = event.mask & IN_DELETE_SELF or (event.mask & IN_MOVE_SELF and directory.is_moving)
        if is_gone and directory.parent is not None:
            self._moving = {at: one for at, one in self._moving.items() if one is not directory}
            self._forget(directory)

    def _follow_child(self, directory: WatchedDirectory, event: Event) -> Iterator[str]:
        name, children = event.name, directory.children
        if event.mask & IN_CREATE and name not in children:
            yield from self._observe(self._add(directory, name), report=True)
        elif event.mask & IN_MOVED_FROM and name in children:
            children[name].is_moving = True
            self._moving[event.cookie] = children.pop(name)
        elif event.mask & IN_MOVED_TO:
            self._forget(children.pop(name, None))
            if (moved := self._moving.pop(event.cookie, None)) is not None:
                moved.parent, moved.name, moved.is_moving = directory, name, False
                children[name] = moved
            else:
                yield from self._observe(self._add(directory, name), report=True)
        elif event.mask & IN_DELETE:
            self._forget(children.pop(name, None))

    def _add(self, parent: WatchedDirectory, name: str) -> WatchedDirectory:
        child = parent.children[name] = WatchedDirectory(self, parent, name)
        return child

    def _observe(self, directory: WatchedDirectory, *, report: bool) -> Iterator[str]:
        """Watch a directory recursively; optionally yields its existing entries."""
        pending = deque([directory])
        while pending:
            directory = pending.popleft()
            try:
                descriptor = self._root.open_directory(join(self._path, directory.path))
            except RefusedFile:
                continue
            except OSError as error:
                if error.errno not in _PASSED_OVER:
                    raise
                continue
            with closing(descriptor):
                self._watch(directory, descriptor)
                if not self._recursive:
                    return
                for name, is_directory in _entries(descriptor):
                    if is_directory:
                        pending.append(self._add(directory, name))
                    if report:
                        directory.reported.add(name)
                        yield directory.below(name)

    def _watch(self, directory: WatchedDirectory, descriptor: int) -> None:
        self._quota.take()
        try:
            directory.watch = self._inotify.add(descriptor, directory)
        except TooManyWatches as error:
            self._quota.give()
            raise ConnectError(Code.RESOURCE_EXHAUSTED, str(error)) from error

    def _forget(self, directory: WatchedDirectory | None) -> None:
        pending = [] if directory is None else [directory]
        while pending:
            directory = pending.pop()
            pending.extend(directory.children.values())
            if directory.watch is not None:
                self._inotify.remove(directory.watch, directory)
                self._quota.give()
                directory.watch = None


def _entries(directory: int) -> list[tuple[str, bool]]:
    with os.scandir(directory) as found:
        return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
