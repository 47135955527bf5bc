import asyncio
import errno
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from sandbox_engine.system.syscalls import inotify_add_watch, inotify_init, inotify_rm_watch

IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_ISDIR = 0x4000_0000

_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x0100_0000

# One mask for all watches: a second watch on an inode replaces the mask of the first one.
_MASK = (
    IN_MODIFY
    | IN_ATTRIB
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_CREATE
    | IN_DELETE
    | IN_DELETE_SELF
    | IN_MOVE_SELF
    | _IN_ONLYDIR
)

_HEADER = struct.Struct("iIII")
_READ_BYTES = 16 * 1024

# The kernel's default is 128 instances per user; beyond this number they are shared.
_INSTANCES_AT_MOST = 32


class Event(NamedTuple):
    """An inotify event of a directory, or of its entry `name`."""

    mask: int
    cookie: int
    name: str


class Listener(Protocol):
    """Receives events of one directory in the event loop."""

    def happened(self, event: Event) -> None: ...

    def lost(self) -> None:
        """Handle a queue overflow: events were lost."""


class TooManyWatches(Exception):
    """The machine's limit on inotify watches is reached."""

    def __init__(self) -> None:
        super().__init__("this machine's limit on watched directories is reached")


class Inotify:
    """One inotify instance; its queue can overflow."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = inotify_init()
        self._loop.add_reader(self._descriptor, self.drain)
        # Held while a watch is added and while events are read, so that no event arrives before its
        # listener is registered.
        self._lock = threading.Lock()
        self._listeners: dict[int, list[Listener]] = {}
        self.sharers = 0

    def close(self) -> None:
        """Close the instance; its watches must have been removed."""
        self._loop.remove_reader(self._descriptor)
        # In a separate thread: it takes the kernel ten milliseconds.
        self._closing = self._loop.run_in_executor(None, os.close, self._descriptor)

    def add(self, directory: int, listener: Listener) -> int:
        """Watch an open directory, from any thread; returns the handle for `remove`."""
        with self._lock:
            try:
                watch = inotify_add_watch(self._descriptor, f"/proc/self/fd/{directory}", _MASK)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise TooManyWatches from error
                raise
            self._listeners.setdefault(watch, []).append(listener)
            return watch

    def remove(self, watch: int, listener: Listener) -> None:
        """Remove a watch; no error if it is gone."""
        with self._lock:
            listeners = self._listeners.get(watch, [])
            if listener in listeners:
                listeners.remove(listener)
                if not listeners:
                    del self._listeners[watch]
                    with suppress(OSError):
                        inotify_rm_watch(self._descriptor, watch)

    def drain(self) -> None:
        """Deliver all queued events."""
        with self._lock:
            try:
                buffer = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            deliveries = list(self._addressed(buffer))
        for listener, event in deliveries:
            if event.mask & _IN_Q_OVERFLOW:
                listener.lost()
            else:
                listener.happened(event)

    def _addressed(self, buffer: bytes) -> Iterator[tuple[Listener, Event]]:
        for watch, event in _events(buffer):
            if event.mask & _IN_Q_OVERFLOW:
                everyone = [
                    listener for listeners in self._listeners.values() for listener in listeners
                ]
                yield from ((listener, event) for listener in everyone)
            elif event.mask & _IN_IGNORED:
                self._listeners.pop(watch, None)
            else:
                yield from ((listener, event) for listener in self._listeners.get(watch, ()))


class InotifyShare:
    """The inotify instance of a sandbox; above a limit shared with other sandboxes."""

    _instances: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, list[Inotify]]] = (
        WeakKeyDictionary()
    )

    def __init__(self) -> None:
        self._instance: Inotify | None = None
        self._borrowers = 0

    def borrow(self) -> Inotify:
        """Acquire the instance."""
        if self._instance is None:
            self._instance = self._choose()
            self._instance.sharers += 1
        self._borrowers += 1
        return self._instance

    def give_back(self) -> None:
        """Release the instance after removing its watches."""
        self._borrowers -= 1
        if self._instance is not None and not self._borrowers:
            self._instance.sharers -= 1
            if not self._instance.sharers:
                self._instances[asyncio.get_running_loop()].remove(self._instance)
                self._instance.close()
            self._instance = None

    def drain(self) -> None:
        """Deliver all queued events."""
        if self._instance is not None:
            self._instance.drain()

    def _choose(self) -> Inotify:
        instances = self._instances.setdefault(asyncio.get_running_loop(), [])
        if len(instances) < _INSTANCES_AT_MOST:
            try:
                instances.append(Inotify())
            except OSError as error:
                if error.errno != errno.EMFILE or not instances:
                    raise
        return min(instances, key=lambda instance: instance.sharers)


def _events(buffer: bytes) -> Iterator[tuple[int, Event]]:
    offset = 0
    while offset < len(buffer):
        watch, mask, cookie, length = _HEADER.unpack_from(buffer, offset)
        offset += _HEADER.size
        name = buffer[offset : offset + length].rstrip(b"\0")
        offset += length
        yield watch, Event(mask, cookie, os.fsdecode(name))
