import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedLock:
    """A shared/exclusive lock that prefers exclusive holders.

    It orders the start of commands and pauses: the runtime's exec hangs in a frozen container.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._alone = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock shared."""
        async with self._alone:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()

    async def wait_unlocked(self) -> None:
        """Wait until nobody holds or awaits the lock exclusively."""
        if self._alone.locked():
            async with self._alone:
                return

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock exclusively."""
        async with self._alone:
            await self._empty.wait()
            yield
