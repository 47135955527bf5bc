import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RootClosed(Exception):
    """The sandbox is gone, and its files with it."""


class Handle:
    """A descriptor that several threads use, and one of them lets go of."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._users = 1
        self._closed = False
        self._farewells: list[Callable[[], None]] = []

    def close(self) -> None:
        """Let go; what is under way ends by itself, what comes is refused."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            farewells = list(self._farewells)
        for farewell in farewells:
            farewell()
        self._release()

    @contextmanager
    def held(self) -> Iterator[int]:
        """Keep the descriptor from being closed, and its number from being given away."""
        with self._lock:
            if self._closed:
                raise RootClosed
            self._users += 1
        try:
            yield self._descriptor
        finally:
            self._release()

    @contextmanager
    def when_closed(self, farewell: Callable[[], None]) -> Iterator[None]:
        """Have `farewell` called if it is closed within this context, in whichever thread."""
        with self._lock:
            if self._closed:
                raise RootClosed
            self._farewells.append(farewell)
        try:
            yield
        finally:
            with self._lock:
                self._farewells.remove(farewell)

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self._descriptor)
