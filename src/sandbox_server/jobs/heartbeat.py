import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from sandbox_server.db.session import Sessions
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.repository import JobRepository

log = logging.getLogger(__name__)

_BEATS_PER_LEASE = 3  # one may fail


class Heartbeat:
    """Extends the leases of this process's jobs in one statement."""

    def __init__(
        self, sessions: Sessions, held: Callable[[], Collection[LeasedJob]], *, lease: timedelta
    ) -> None:
        self._sessions = sessions
        self._held = held
        self._lease = lease

    async def run(self) -> None:
        """Beat until cancelled."""
        interval = (self._lease / _BEATS_PER_LEASE).total_seconds()
        while True:
            await asyncio.sleep(interval)
            try:
                async with asyncio.timeout(interval):
                    await self._beat()
            except (SQLAlchemyError, OSError, TimeoutError) as error:
                log.warning("leases not extended jobs=%d error=%r", len(self._held()), error)

    async def _beat(self) -> None:
        if held := self._held():
            async with self._sessions.begin() as session:
                await JobRepository(session).extend(held, lease=self._lease)
