import asyncio
import logging
from datetime import timedelta

from sandbox_server.db.session import OUTAGES, Sessions
from sandbox_server.streams.source import Page, Source

log = logging.getLogger(__name__)

_LIMIT = 200
_PATIENCE = timedelta(seconds=30)
_TRY_AGAIN = timedelta(seconds=1)


class Reading:
    """Reads logs for many, few at a time: all who follow together take that many connections to the database."""

    def __init__(self, sessions: Sessions, *, at_once: int) -> None:
        self._sessions = sessions
        self._turns = asyncio.Semaphore(at_once)

    async def read(self, source: Source, *, after: int) -> Page:
        async with self._turns, asyncio.timeout(_PATIENCE.total_seconds()):
            return await source.read(self._sessions, after=after, limit=_LIMIT)

    async def read_at_last(self, source: Source, *, after: int) -> Page:
        """Read once the database answers again: who follows is not sent away by an outage."""
        while True:
            try:
                return await self.read(source, after=after)
            except OUTAGES as error:
                log.warning("a stream waits for the database error=%r", error)
            await asyncio.sleep(_TRY_AGAIN.total_seconds())

    async def find_tail(self, source: Source, *, count: int) -> int:
        async with self._turns, asyncio.timeout(_PATIENCE.total_seconds()):
            return await source.find_tail(self._sessions, count=count)
