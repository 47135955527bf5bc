import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedLock:
    """Many may be inside at once, or one alone; whoever wants to be alone goes before newcomers.

    It orders the start of commands against pause: the runtime's exec hangs in a frozen container.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._alone = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be inside with others."""
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
        """Wait until nobody is inside alone or about to be."""
        if self._alone.locked():
            async with self._alone:
                return

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Wait until all have left, and be inside alone."""
        async with self._alone:
            await self._empty.wait()
            yield
