import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from sandbox_server.domain.errors import SandboxError
from sandbox_server.log.blocks import Window
from sandbox_server.log.reader import LogReader
from sandbox_server.log.source import Source

log = logging.getLogger(__name__)

# Minimum time between two reads. Sending costs the same for one event or a hundred, so with more followers
# more events are collected.
_INTERVAL = timedelta(milliseconds=10)
_INTERVAL_PER_FOLLOWER = timedelta(microseconds=60)
_MAX_INTERVAL = timedelta(milliseconds=100)


class Feed:
    """One stream while it has followers. It is read once for all of them, when there is new data and a follower waits for it.

    The fastest follower therefore sets the pace. A follower behind the window reads from the log on its own.
    """

    def __init__(
        self,
        source: Source,
        reader: LogReader,
        *,
        position: int,
        on_topic: Callable[["Feed", str], None] = lambda _feed, _topic: None,
    ) -> None:
        self.source = source
        self.topic = source.topic
        self._on_topic = on_topic
        self.window = Window(position)
        self.over = False
        self.followers = 0
        self.read_at = -_MAX_INTERVAL.total_seconds()
        self.seen_counter: int | None = None
        self._reader = reader
        self._due = asyncio.Event()
        self._due.set()
        self._requested = asyncio.Event()
        self._new_items = asyncio.Event()

    def schedule_read(self) -> None:
        """Read on: there may be new data."""
        self._due.set()

    def wake_followers(self) -> None:
        self._requested.clear()
        new_items, self._new_items = self._new_items, asyncio.Event()
        new_items.set()

    async def wait(self) -> None:
        """Wait for new data or the end."""
        self._requested.set()
        await self._new_items.wait()

    async def run(self) -> None:
        """Read until the stream ends."""
        try:
            while not self.over:
                await self._due.wait()
                await self._requested.wait()
                await self._throttle()
                self._due.clear()
                await self._read()
        except SandboxError as error:
            log.info("stream ended topic=%s reason=%s", self.source.topic, error)
        except Exception:
            log.exception("stream failed topic=%s", self.source.topic)
        finally:
            self.over = True
            self.wake_followers()

    async def _throttle(self) -> None:
        interval = min(_INTERVAL + self.followers * _INTERVAL_PER_FOLLOWER, _MAX_INTERVAL)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0, self.read_at + interval.total_seconds() - loop.time()))
        self.read_at = loop.time()

    async def _read(self) -> None:
        page = await self._reader.read_with_retry(self.source, after=self.window.position)
        if page.topic is not None and page.topic != self.topic:
            self._on_topic(self, page.topic)
        self.window.add(page)
        self.over = page.over
        if page.more:
            self._due.set()
        if page.items:
            self.wake_followers()
