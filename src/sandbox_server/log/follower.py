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
    """A client of a stream while its connection lasts."""

    def end(self) -> None: ...

    def disconnect(self) -> None: ...

    def is_stalled(self, *, since: float) -> bool: ...


class Hub(Protocol):
    """Registers followers and connects them to feeds."""

    def registered(self, follower: "LogFollower") -> AbstractContextManager[None]: ...

    def joined(self, source: Source, position: int) -> AbstractContextManager[Feed]: ...

    async def read_on(self, source: Source, position: int) -> Page: ...


class LogFollower:
    """A client of a stream. It reads from the log until it reaches the feed, then joins the other followers.

    The next block is taken after the previous one was sent, so a slow client does not delay others.
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
        self._sending_since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether everything was sent before and nothing will follow."""
        return self._first.over and not self._first.items

    def end(self) -> None:
        """End after the block that is being sent."""
        self._ended = True
        if self._feed is not None:
            self._feed.wake_followers()

    def disconnect(self) -> None:
        """End in the middle of a block that the client does not read."""
        self.end()
        if self._sending_since is not None and self._cut is not None:
            self._cut()

    def is_stalled(self, *, since: float) -> bool:
        """Return whether a block handed out before that time of the event loop's clock is still being sent."""
        return self._sending_since is not None and self._sending_since < since

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """Yield blocks until the stream ends."""
        loop = asyncio.get_running_loop()
        with self._hub.registered(self):
            async with aclosing(self._all_blocks()) as blocks:
                async for block in blocks:
                    if self._ended:
                        return
                    self._sending_since = loop.time()
                    yield block
                    self._sending_since = None
                    self._position = block.position

    async def _all_blocks(self) -> AsyncGenerator[Block, None]:
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
                    while (found := await self._next_block(feed)) is not None:
                        yield found
                self._feed = None
                if self._ended or feed.over:
                    return
            page = await self._read_on()

    async def _next_block(self, feed: Feed) -> Block | None:
        """Wait for the next block of the feed; None if the feed has ended or this follower has fallen behind."""
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
            log.info("stream ended topic=%s reason=%s", self.source.topic, error)
            return None
