import asyncio
import logging
from datetime import timedelta

from sandbox_server.domain.errors import SandboxError
from sandbox_server.log.blocks import Window
from sandbox_server.log.reader import LogReader
from sandbox_server.log.source import Source

log = logging.getLogger(__name__)

# Between two reads while there is always more. To send costs the same whether it is one event or a hundred,
# so the more who follow, the more is gathered for them.
_PACE = timedelta(milliseconds=10)
_PACE_PER_FOLLOWER = timedelta(microseconds=60)
_SLOWEST_PACE = timedelta(milliseconds=100)


class Feed:
    """One stream as long as somebody follows it: read once for all, when it has grown and somebody has got all before.

    So the fastest of those who follow sets the pace, and who lags behind the window reads from the log alone.
    """

    def __init__(self, source: Source, reader: LogReader, *, position: int) -> None:
        self.source = source
        self.window = Window(position)
        self.over = False
        self.followers = 0
        self.read_at = -_SLOWEST_PACE.total_seconds()
        self.seen_counter: int | None = None
        self._reader = reader
        self._grown = asyncio.Event()
        self._grown.set()
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()

    def grow(self) -> None:
        """Have it read on: there may be more."""
        self._grown.set()

    def stir(self) -> None:
        """Wake all who wait."""
        self._wanted.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait(self) -> None:
        """Wait until there may be more, or nothing any more."""
        self._wanted.set()
        await self._news.wait()

    async def run(self) -> None:
        """Read on until nothing can follow."""
        try:
            while not self.over:
                await self._grown.wait()
                await self._wanted.wait()
                await self._keep_pace()
                self._grown.clear()
                await self._read()
        except SandboxError as error:
            log.info("a stream has ended topic=%s reason=%s", self.source.topic, error)
        except Exception:
            log.exception("a stream has failed topic=%s", self.source.topic)
        finally:
            self.over = True
            self.stir()

    async def _keep_pace(self) -> None:
        pace = min(_PACE + self.followers * _PACE_PER_FOLLOWER, _SLOWEST_PACE)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0, self.read_at + pace.total_seconds() - loop.time()))
        self.read_at = loop.time()

    async def _read(self) -> None:
        page = await self._reader.read_at_last(self.source, after=self.window.position)
        self.window.add(page)
        self.over = page.over
        if page.more:
            self._grown.set()
        if page.items:
            self.stir()
