import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta


class PendingCreates:
    """The time in which nobody waits for a sandbox that is being started."""

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
        """Wait for it, but no longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._idle.wait()
