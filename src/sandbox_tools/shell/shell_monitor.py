import asyncio
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self


class ShellMonitor:
    """Wakes who waits for a shell: when it tells something, and when it ends."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.ended = False

    @classmethod
    @contextmanager
    def of(cls, wake: Path, pid: int) -> Iterator[Self]:
        """Watch a shell by the FIFO that it writes to and by its process."""
        monitor = cls()
        loop = asyncio.get_running_loop()
        # Opened for writing too, so that it is not at its end whenever no shell has it open.
        fifo = os.open(wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        loop.add_reader(fifo, monitor._on_wake, fifo)
        try:
            with _on_end(loop, pid, monitor._on_end):
                yield monitor
        finally:
            loop.remove_reader(fifo)
            os.close(fifo)

    async def wait_for_change(self, within_s: float) -> None:
        """Wait until something has changed since this was asked last, but only so long."""
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
    """Wait until a process has ended."""
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
