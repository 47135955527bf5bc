import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from typing import Protocol

from sandbox_server.domain.errors import SandboxError
from sandbox_server.log.blocks import Block, blocks_of
from sandbox_server.log.feed import Feed
from sandbox_server.log.source import Page, Source

log = logging.getLogger(__name__)


class Follower(Protocol):
    """One who is told something as long as a connection lasts."""

    def end(self) -> None: ...

    def cut_off(self) -> None: ...

    def is_stalled(self, *, since: float) -> bool: ...


class Hub(Protocol):
    """Where those who follow come together."""

    def registered(self, follower: "LogFollower") -> AbstractContextManager[None]: ...

    def joined(self, source: Source, position: int) -> AbstractContextManager[Feed]: ...

    async def read_on(self, source: Source, position: int) -> Page: ...


class LogFollower:
    """One who follows a stream: from the log as long as that is behind the feed, then with all the others.

    No block is taken before the last one was sent, so one that stalls costs the others nothing.
    """

    def __init__(
        self, source: Source, hub: Hub, *, first: Page, cut: Callable[[], None] | None = None
    ) -> None:
        self.source = source
        self._hub = hub
        self._first = first
        self._cut = cut
        self._position = 0
        self._feed: Feed | None = None
        self._ended = False
        self._handed_at: float | None = None

    @property
    def is_over(self) -> bool:
        """All was told before, and nothing will follow."""
        return self._first.over and not self._first.items

    def end(self) -> None:
        """Have it end after what is being sent."""
        self._ended = True
        if self._feed is not None:
            self._feed.stir()

    def cut_off(self) -> None:
        """Have it end in the midst of what is being sent, and is not taken."""
        self.end()
        if self._handed_at is not None and self._cut is not None:
            self._cut()

    def is_stalled(self, *, since: float) -> bool:
        """Tell whether what was handed out before that instant of the loop's clock is still being sent."""
        return self._handed_at is not None and self._handed_at < since

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """Give what comes until nothing can follow, or it is ended."""
        loop = asyncio.get_running_loop()
        with self._hub.registered(self):
            async with aclosing(self._all()) as blocks:
                async for block in blocks:
                    if self._ended:
                        return
                    self._handed_at = loop.time()
                    yield block
                    self._handed_at = None
                    self._position = block.position

    async def _all(self) -> AsyncGenerator[Block, None]:
        page: Page | None = self._first
        while page is not None:
            for block in blocks_of(page.items):
                yield block
            self._position = page.position
            if page.over:
                return
            if not page.more:
                with self._hub.joined(self.source, self._position) as feed:
                    self._feed = feed
                    while (found := await self._next_of(feed)) is not None:
                        yield found
                self._feed = None
                if self._ended or feed.over:
                    return
            page = await self._read_on()

    async def _next_of(self, feed: Feed) -> Block | None:
        """Wait for the next block of the feed; None where it has ended, or left this one behind."""
        while not self._ended and feed.window.start <= self._position:
            block = feed.window.find_next(self._position)
            if block is not None or feed.over:
                return block
            await feed.wait()
        return None

    async def _read_on(self) -> Page | None:
        try:
            return await self._hub.read_on(self.source, self._position)
        except SandboxError as error:
            log.info("a stream has ended topic=%s reason=%s", self.source.topic, error)
            return None
