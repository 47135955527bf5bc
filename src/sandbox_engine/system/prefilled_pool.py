import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0

T = TypeVar("T")


class PrefilledPool(Generic[T]):
    """A pool of up to `size` objects made in advance, one at a time in the background.

    `failure` is the error of the latest attempt, None after a success.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[T]],
        discard: Callable[[T], Awaitable[None]],
        size: int,
    ) -> None:
        self._make = make
        self._discard = discard
        self._size = size
        self._ready: deque[T] = deque()
        self._refilling: asyncio.Task[None] | None = None
        self._abandoned: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self.failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._ready)

    def refill(self) -> None:
        """Start making missing objects."""
        idle = self._refilling is None or self._refilling.done()
        if idle and len(self) < self._size and not self._closing.is_set():
            self._refilling = asyncio.create_task(self._refill())

    async def take(self) -> T:
        """Return a ready object, or make one."""
        try:
            return self._ready.popleft() if self._ready else await self._make_now()
        finally:
            self.refill()

    async def close(self) -> None:
        """Stop refilling and discard unused objects."""
        self._closing.set()
        if self._refilling is not None:
            await self._refilling
        await asyncio.gather(*self._abandoned)
        discarded = [self._discard(thing) for thing in self._ready]
        self._ready.clear()
        for outcome in await asyncio.gather(*discarded, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.warning("discarding failed", error=outcome)

    async def _refill(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while len(self) < self._size and not self._closing.is_set():
            try:
                self._ready.append(await self._attempt())
                pause = _FIRST_PAUSE_SECONDS
            except Exception as error:  # noqa: BLE001 - whatever it is, takers get it themselves
                log.warning("refilling the pool failed", error=error, retry_s=pause)
                await self._wait_while_open(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _attempt(self) -> T:
        try:
            made = await self._make()
        except Exception as error:
            self.failure = error
            raise
        self.failure = None
        return made

    async def _make_now(self) -> T:
        making = asyncio.create_task(self._attempt())
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            keeping = asyncio.create_task(self._keep(making))
            self._abandoned.add(keeping)
            keeping.add_done_callback(self._abandoned.discard)
            raise

    async def _keep(self, making: asyncio.Task[T]) -> None:
        """Keep or discard an object whose taker was cancelled."""
        with suppress(Exception):
            made = await making
            if len(self) < self._size and not self._closing.is_set():
                self._ready.append(made)
            else:
                await self._discard(made)

    async def _wait_while_open(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
