import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from sandbox_server.db.jobs import JobRepository
from sandbox_server.db.session import Sessions
from sandbox_server.domain.jobs import LeasedJob

log = logging.getLogger(__name__)

_BEATS_PER_LEASE = 3  # so one may fail


class Heartbeat:
    """Extends the leases of all jobs this process works on, together."""

    def __init__(self, sessions: Sessions, *, lease: timedelta) -> None:
        self._sessions = sessions
        self._lease = lease
        self._kept: set[LeasedJob] = set()

    @contextmanager
    def keeping(self, job: LeasedJob) -> Iterator[None]:
        """Keep the job leased while in the context."""
        self._kept.add(job)
        try:
            yield
        finally:
            self._kept.discard(job)

    async def run(self) -> None:
        """Beat until cancelled."""
        interval = (self._lease / _BEATS_PER_LEASE).total_seconds()
        while True:
            await asyncio.sleep(interval)
            try:
                async with asyncio.timeout(interval):
                    await self._beat()
            except (SQLAlchemyError, OSError, TimeoutError) as error:
                log.warning("leases not extended jobs=%d error=%r", len(self._kept), error)

    async def _beat(self) -> None:
        if self._kept:
            async with self._sessions.begin() as session:
                await JobRepository(session).extend(self._kept, lease=self._lease)
