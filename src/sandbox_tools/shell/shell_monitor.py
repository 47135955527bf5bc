import asyncio
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self


class ShellMonitor:
    """Waits for events of a shell: messages through its FIFO, and its end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.ended = False

    @classmethod
    @contextmanager
    def open(cls, wake: Path, pid: int) -> Iterator[Self]:
        """Monitor a shell by its FIFO and its process."""
        monitor = cls()
        loop = asyncio.get_running_loop()
        # Opened for writing too: otherwise it is at EOF whenever the shell has it closed.
        fifo = os.open(wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        loop.add_reader(fifo, monitor._on_wake, fifo)
        try:
            with _on_end(loop, pid, monitor._on_end):
                yield monitor
        finally:
            loop.remove_reader(fifo)
            os.close(fifo)

    async def wait_for_change(self, within_s: float) -> None:
        """Wait for an event since the last call, or until the timeout."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), within_s)
        self._event.clear()

    def _on_wake(self, fifo: int) -> None:
        with suppress(BlockingIOError):
            os.read(fifo, 4096)
        self._event.set()

    def _on_end(self) -> None:
        self.ended = True
        self._event.set()


async def wait_for_exit(pid: int) -> None:
    """Wait until the process has ended."""
    ended = asyncio.Event()
    with _on_end(asyncio.get_running_loop(), pid, ended.set):
        await ended.wait()


@contextmanager
def _on_end(loop: AbstractEventLoop, pid: int, call: Callable[[], None]) -> Iterator[None]:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        call()
        yield
        return

    def ended() -> None:
        loop.remove_reader(process)
        call()

    loop.add_reader(process, ended)
    try:
        yield
    finally:
        loop.remove_reader(process)
        os.close(process)
