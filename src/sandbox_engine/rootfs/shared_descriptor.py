import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RootClosed(Exception):
    """The sandbox is gone with its files."""


class SharedDescriptor:
    """A descriptor shared by threads that is closed once unused."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._users = 1
        self._closed = False
        self._callbacks: list[Callable[[], None]] = []

    def close(self) -> None:
        """Close; operations in progress finish, new ones are rejected."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
        self._release()

    @contextmanager
    def held(self) -> Iterator[int]:
        """Keep the descriptor open during the context."""
        with self._lock:
            if self._closed:
                raise RootClosed
            self._users += 1
        try:
            yield self._descriptor
        finally:
            self._release()

    @contextmanager
    def on_close(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `farewell` if the handle is closed within the context, in any thread."""
        with self._lock:
            if self._closed:
                raise RootClosed
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self._descriptor)
