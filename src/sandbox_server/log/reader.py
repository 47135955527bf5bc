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
_TIMEOUT = timedelta(seconds=30)
_RETRY_INTERVAL = timedelta(seconds=1)


class LogReader:
    """Reads logs with a limited number of concurrent database connections.

    No tenant may use all of them, however many streams it follows.
    """

    def __init__(self, sessions: Sessions, *, at_once: int) -> None:
        self._sessions = sessions
        self._slots = asyncio.Semaphore(at_once)
        self._per_tenant = at_once - 1
        self._tenant_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def read(self, source: Source, *, after: int) -> Page:
        return await cancelled_once(self._read(source, after=after))

    async def read_with_retry(self, source: Source, *, after: int) -> Page:
        """Read, and retry while the database is unavailable."""
        while True:
            try:
                return await self.read(source, after=after)
            except OUTAGES as error:
                log.warning("stream waits for the database error=%r", error)
            await asyncio.sleep(_RETRY_INTERVAL.total_seconds())

    async def find_tail(self, source: Source, *, count: int) -> int:
        async with self._slot(source):
            return await source.find_tail(self._sessions, count=count)

    async def _read(self, source: Source, *, after: int) -> Page:
        async with self._slot(source):
            return await source.read(self._sessions, after=after, limit=_LIMIT)

    @asynccontextmanager
    async def _slot(self, source: Source) -> AsyncIterator[None]:
        own = self._tenant_slots.setdefault(source.tenant_id, asyncio.Semaphore(self._per_tenant))
        async with own, self._slots, asyncio.timeout(_TIMEOUT.total_seconds()):
            yield
