import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, update

from sandbox_server.browsers import transitions
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserDriver
from sandbox_server.db.session import OUTAGES, Sessions
from sandbox_server.domain.computers.browsers import GRACE, SESSION_ENDED, SessionState
from sandbox_server.domain.errors import BrowserSessionNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.jobs.kinds import BROWSER_SESSION
from sandbox_server.jobs.repository import JobRepository

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
WEBDRIVER_LEASE = timedelta(minutes=5)
"""The longest pause between two requests of a WebDriver client."""

_TOUCH_EVERY_S = 30.0
_MOST_TOUCHED = 10_000
_MOST_NAMES = 1000

_CLOSED = "The browser session ended: a driver closed the browser."
_now = func.clock_timestamp()


class SessionDrivers:
    """Records which drivers are connected to sessions, by leases that this server extends.

    A server that stops leaves the rows of its drivers: they may reconnect to another server until the leases lapse.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._own: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._touched: OrderedDict[str, float] = OrderedDict()
        self._is_stopping = False

    def connect(self, session_id: str) -> str:
        """Note a driver; returns its id."""
        driver_id = new_id()
        self._own[driver_id] = session_id
        self._start(self._add(driver_id, session_id, LEASE))
        return driver_id

    def leave(self, driver_id: str) -> None:
        """Note that a driver has disconnected."""
        session_id = self._own.pop(driver_id, None)
        if session_id is not None and not self._is_stopping:
            self._start(self._remove(driver_id, session_id))

    def touch(self, session_id: str) -> None:
        """Note a request of a WebDriver client, which has no connection: it counts as connected for a while."""
        now = asyncio.get_running_loop().time()
        if now - self._touched.get(session_id, -_TOUCH_EVERY_S) >= _TOUCH_EVERY_S:
            self._touched[session_id] = now
            if len(self._touched) > _MOST_TOUCHED:
                self._touched.popitem(last=False)
            self._start(self._add(_webdriver(session_id), session_id, WEBDRIVER_LEASE))

    def quit(self, session_id: str) -> None:
        """Note that a WebDriver client has ended its session."""
        self._touched.pop(session_id, None)
        self._start(self._remove(_webdriver(session_id), session_id))

    def close(self, session_id: str) -> None:
        """Note that a driver has closed the browser."""
        self._start(self._end(session_id))

    def name_download(self, session_id: str, guid: str, name: str) -> None:
        """Note the name of a download, whose file a driver may have named by its GUID."""
        self._start(self._name_download(session_id, guid, name))

    def stop(self) -> None:
        """Leave the rows of connected drivers, which the end of this server disconnects."""
        self._is_stopping = True

    async def run(self) -> None:
        """Extend the leases of connected drivers until cancelled."""
        while True:
            await asyncio.sleep(LEASE.total_seconds() / 4)
            try:
                await self._extend()
            except OUTAGES as error:
                log.warning("leases of drivers not extended error=%r", error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._in_order(list(self._tasks), work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_order(
        self, before: list[asyncio.Task[None]], work: Coroutine[Any, Any, None]
    ) -> None:
        # A driver may leave before its arrival is recorded.
        await asyncio.gather(*before, return_exceptions=True)
        try:
            await work
        except BrowserSessionNotFound:
            pass
        except OUTAGES as error:  # leases lapse by themselves
            log.warning("driver not recorded error=%r", error)

    async def _add(self, driver_id: str, session_id: str, lease: timedelta) -> None:
        async with self._sessions.begin() as session:
            row, now = await BrowserSessionRepository(session).lock(session_id)
            until = now + lease
            await session.merge(BrowserDriver(id=driver_id, session_id=session_id, until=until))
            row.driven_at = row.driven_at or now
            row.connect_by = row.left_at = None
            await JobRepository(session).due(BROWSER_SESSION, session_id, until)

    async def _remove(self, driver_id: str, session_id: str) -> None:
        async with self._sessions.begin() as session:
            repository = BrowserSessionRepository(session)
            row, now = await repository.lock(session_id)
            await session.execute(delete(BrowserDriver).where(BrowserDriver.id == driver_id))
            until = await repository.find_driven_until(session_id)
            if row.state not in SESSION_ENDED and (until is None or until <= now):
                row.left_at = now
                await JobRepository(session).due(BROWSER_SESSION, session_id, now + GRACE)

    async def _name_download(self, session_id: str, guid: str, name: str) -> None:
        async with self._sessions.begin() as session:
            row, _ = await BrowserSessionRepository(session).lock(session_id)
            if len(row.downloads) < _MOST_NAMES:
                row.downloads = {**row.downloads, guid: name}

    async def _end(self, session_id: str) -> None:
        async with self._sessions.begin() as session:
            row, now = await BrowserSessionRepository(session).lock(session_id)
            transitions.end(row, SessionState.COMPLETED, _CLOSED, now)
            await JobRepository(session).due(BROWSER_SESSION, session_id)

    async def _extend(self) -> None:
        if not self._own:
            return
        async with self._sessions.begin() as session:
            mine = update(BrowserDriver).where(BrowserDriver.id.in_(list(self._own)))
            await session.execute(mine.values(until=_now + LEASE))


def _webdriver(session_id: str) -> str:
    return f"webdriver/{session_id}"
