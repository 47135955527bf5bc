import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from weakref import WeakValueDictionary

from sandbox_server.db.session import OUTAGES, Sessions, cancelled_once
from sandbox_server.log.source import Page, Source

log = logging.getLogger(__name__)

_LIMIT = 200
_PATIENCE = timedelta(seconds=30)
_TRY_AGAIN = timedelta(seconds=1)


class LogReader:
    """Reads logs for many, few at a time: all who follow together take that many connections to the database.

    Of these no tenant has all, however many streams it follows.
    """

    def __init__(self, sessions: Sessions, *, at_once: int) -> None:
        self._sessions = sessions
        self._turns = asyncio.Semaphore(at_once)
        self._of_one = at_once - 1
        self._of_tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def read(self, source: Source, *, after: int) -> Page:
        return await cancelled_once(self._read(source, after=after))

    async def read_at_last(self, source: Source, *, after: int) -> Page:
        """Read once the database answers again: who follows is not sent away by an outage."""
        while True:
            try:
                return await self.read(source, after=after)
            except OUTAGES as error:
                log.warning("a stream waits for the database error=%r", error)
            await asyncio.sleep(_TRY_AGAIN.total_seconds())

    async def find_tail(self, source: Source, *, count: int) -> int:
        async with self._turn(source):
            return await source.find_tail(self._sessions, count=count)

    async def _read(self, source: Source, *, after: int) -> Page:
        async with self._turn(source):
            return await source.read(self._sessions, after=after, limit=_LIMIT)

    @asynccontextmanager
    async def _turn(self, source: Source) -> AsyncIterator[None]:
        own = self._of_tenants.setdefault(source.tenant_id, asyncio.Semaphore(self._of_one))
        async with own, self._turns, asyncio.timeout(_PATIENCE.total_seconds()):
            yield
