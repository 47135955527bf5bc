import asyncio
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self


class Watch:
    """Wakes who waits for a shell: when it tells something, and when it ends."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.ended = False

    @classmethod
    @contextmanager
    def of(cls, wake: Path, pid: int) -> Iterator[Self]:
        """Watch a shell by the FIFO that it writes to and by its process."""
        watch = cls()
        loop = asyncio.get_running_loop()
        # Opened for writing too, so that it is not at its end whenever no shell has it open.
        told = os.open(wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        loop.add_reader(told, watch._on_told, told)
        try:
            with _on_end(loop, pid, watch._on_end):
                yield watch
        finally:
            loop.remove_reader(told)
            os.close(told)

    async def changed(self, within_s: float) -> None:
        """Wait until something has changed since this was asked last, but only so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), within_s)
        self._event.clear()

    def _on_told(self, told: int) -> None:
        with suppress(BlockingIOError):
            os.read(told, 4096)
        self._event.set()

    def _on_end(self) -> None:
        self.ended = True
        self._event.set()


async def exited(pid: int) -> None:
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
