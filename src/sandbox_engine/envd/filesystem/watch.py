from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem.filesystem_pb import EntryInfo, EventType, FilesystemEvent

from sandbox_engine.envd.filesystem.inotify import (
    IN_ATTRIB,
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_MODIFY,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_UNMOUNT,
    Event,
    InotifyShare,
)
from sandbox_engine.envd.filesystem.watch_tree import (
    WatchedDirectory,
    WatchedTree,
    WatchQuota,
    join,
)
from sandbox_engine.envd.protocol.entries import printable
from sandbox_engine.envd.protocol.error_texts import reason
from sandbox_engine.rootfs.root import Root
from sandbox_engine.rootfs.shared_descriptor import RootClosed

if TYPE_CHECKING:
    from sandbox_engine.envd.protocol.entries import EntryReader
    from sandbox_engine.system.file_threads import FileThreads

# The order of events for one report of the kernel.
_TYPES = (
    (IN_CREATE | IN_MOVED_TO, EventType.CREATE),
    (IN_MOVED_FROM | IN_MOVE_SELF, EventType.RENAME),
    (IN_ATTRIB, EventType.CHMOD),
    (IN_MODIFY, EventType.WRITE),
    (IN_DELETE | IN_DELETE_SELF, EventType.REMOVE),
)
_STILL_THERE = {EventType.CREATE, EventType.CHMOD, EventType.WRITE}
_BATCH = 512
_ROUNDS_TO_CATCH_UP = 32
_TAKEN_AT_ONCE = 10_000  # a larger response would block the event loop


class WatchResources:
    """Shared resources and limits of one sandbox's watchers."""

    def __init__(self) -> None:
        self.inotify = InotifyShare()
        self.directories = WatchQuota(
            16_384,
            Code.RESOURCE_EXHAUSTED,
            "the sandbox's watchers would watch too many directories",
        )
        self.events = WatchQuota(
            65_536, Code.INTERNAL, "events were lost: they came faster than they were fetched"
        )


class Watch:
    """Watches a directory from `start` to `close` and reports E2B's events.

    Kernel events are received in the event loop and processed in a thread, in order and one batch
    at a time; only the thread reads directories.
    """

    def __init__(
        self,
        root: Root,
        path: str,
        real_path: str,
        *,
        recursive: bool,
        reader: Callable[[], EntryReader] | None,
        workers: FileThreads,
        supplies: WatchResources,
    ) -> None:
        self._root = root
        self._path = path
        self._reader = reader
        self._workers = workers
        self._resources = supplies
        self._events = supplies.events
        try:
            inotify = supplies.inotify.borrow()
        except OSError as error:
            text = f"this machine's limit on watches is reached: {reason(error)}"
            raise ConnectError(Code.RESOURCE_EXHAUSTED, text) from error
        self._tree = WatchedTree(
            root,
            real_path,
            inotify,
            supplies.directories,
            recursive=recursive,
            notice=self._notice,
            lose=self._lose,
        )
        self._reports: deque[tuple[WatchedDirectory, Event]] = deque()
        self._reported = asyncio.Event()
        self._found: deque[FilesystemEvent] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._ready = asyncio.Event()
        self._failure: ConnectError | None = None
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._wake)

    async def start(self) -> None:
        """Start watching; later changes will be reported."""
        await self._ready.wait()
        self._check()

    async def receive(self) -> list[FilesystemEvent]:
        """Wait for events."""
        await self._arrived.wait()
        return self.take()

    def take(self) -> list[FilesystemEvent]:
        """Return new events, or the first part of them if there are many."""
        self._check()
        found = [self._found.popleft() for _ in range(min(_TAKEN_AT_ONCE, len(self._found)))]
        self._events.give(len(found))
        if not self._found:
            self._arrived.clear()
        return found

    async def catch_up(self) -> None:
        """Wait until all changes made so far are available.

        A scan of a new directory can find further directories, so one round may not be enough.
        """
        for _ in range(_ROUNDS_TO_CATCH_UP):
            self._resources.inotify.drain()
            if self._idle.is_set():
                return
            await self._idle.wait()

    async def close(self) -> None:
        """Stop watching."""
        self._stop()
        await asyncio.wait([self._task])

    def _check(self) -> None:
        if self._failure is not None:
            raise ConnectError(self._failure.code, self._failure.message)
        if self._task.done():
            self._task.result()

    async def _run(self) -> None:
        try:
            with self._root.on_close(self._root_closed):
                await self._workers.run(self._tree.start)
                self._ready.set()
                self._idle.set()
                while True:
                    await self._reported.wait()
                    self._reported.clear()
                    while self._reports:
                        await self._work_on_batch()
                    self._idle.set()
        except ConnectError as error:
            self._failure = error
        except RootClosed:
            self._failure = _gone()
        except OSError as error:
            self._failure = ConnectError(Code.INTERNAL, f"error watching: {reason(error)}")
        finally:
            try:
                await self._workers.run(self._tree.close)
            finally:
                self._release()

    def _release(self) -> None:
        self._resources.inotify.give_back()
        self._events.give(len(self._reports) + len(self._found))
        self._reports.clear()
        self._found.clear()

    def _wake(self, _: asyncio.Task[None]) -> None:
        self._idle.set()
        self._ready.set()
        self._arrived.set()

    async def _work_on_batch(self) -> None:
        batch = [self._reports.popleft() for _ in range(min(_BATCH, len(self._reports)))]
        try:
            found = await self._workers.run(
                partial(self._translate_all, batch),
                discard=lambda found: self._events.give(len(found)),
            )
        finally:
            self._events.give(len(batch))
        self._found.extend(found)
        self._arrived.set()

    def _translate_all(self, batch: list[tuple[WatchedDirectory, Event]]) -> list[FilesystemEvent]:
        reader = None if self._reader is None else self._reader()
        found: list[FilesystemEvent] = []
        try:
            for directory, event in batch:
                for translated in self._translate(directory, event, reader):
                    self._events.take()
                    found.append(translated)
        except BaseException:
            self._events.give(len(found))
            raise
        return found

    def _translate(
        self, directory: WatchedDirectory, event: Event, reader: EntryReader | None
    ) -> Iterator[FilesystemEvent]:
        if event.mask & IN_UNMOUNT:
            raise _gone()
        if directory.watch is None:
            return  # it left the tree before the event was read
        if event.mask & IN_CREATE and event.name in directory.reported:
            directory.reported.discard(event.name)
            return
        if event.mask & (IN_DELETE | IN_MOVED_FROM):
            directory.reported.discard(event.name)
        if event.name or directory.parent is None:
            path = directory.below(event.name) if event.name else directory.path
            for kind in (kind for bits, kind in _TYPES if event.mask & bits):
                yield self._message(kind, path, reader)
        for path in self._tree.follow(directory, event):
            yield self._message(EventType.CREATE, path, reader)

    def _message(self, kind: EventType, path: str, reader: EntryReader | None) -> FilesystemEvent:
        entry = None
        if reader is not None and kind in _STILL_THERE:
            entry = self._describe(reader, path)
        return FilesystemEvent(name=printable(path), type=kind, entry=entry)

    def _describe(self, reader: EntryReader, path: str) -> EntryInfo | None:
        try:
            return reader.at(join(self._path, path))
        except OSError:
            return None

    def _notice(self, directory: WatchedDirectory, event: Event) -> None:
        try:
            self._events.take()
        except ConnectError as error:
            self._fail(error)
            return
        self._reports.append((directory, event))
        self._reported.set()
        self._idle.clear()

    def _lose(self) -> None:
        self._fail(ConnectError(Code.INTERNAL, "events were lost: too much happened at once"))

    def _root_closed(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed too
            self._loop.call_soon_threadsafe(self._fail, _gone())

    def _fail(self, failure: ConnectError) -> None:
        self._failure = self._failure or failure
        self._stop()

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._task.cancel()


def _gone() -> ConnectError:
    return ConnectError(Code.UNAVAILABLE, "the sandbox is gone")
