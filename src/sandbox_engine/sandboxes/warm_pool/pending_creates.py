import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta


class PendingCreates:
    """Tracks creates that wait for a sandbox to start."""

    def __init__(self) -> None:
        self._waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def creating(self) -> Iterator[None]:
        self._waiting += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._idle.set()

    async def wait(self, patience: timedelta) -> None:
        """Wait until there are none, up to `patience`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._idle.wait()
