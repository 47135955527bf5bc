import logging
from datetime import datetime, timedelta

from sqlalchemy import func, select

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import ForgeAuth
from sandbox_server.forges.github.adapter import GithubAdapter
from sandbox_server.forges.service import Forges
from sandbox_server.jobs.kinds import WEBHOOK_REDELIVERY
from sandbox_server.jobs.repository import JobRepository

log = logging.getLogger(__name__)

_INTERVAL = timedelta(hours=1)
_LOOK_BACK = timedelta(hours=24)


class Redelivery:
    """Has GitHub repeat, once an hour, the webhooks of an App that did not reach any server."""

    def __init__(self, sessions: Sessions, forges: Forges) -> None:
        self._sessions = sessions
        self._forges = forges

    async def work(self, job: LeasedJob) -> datetime | None:
        """Look at the deliveries of one App; returns when to look again, None if it was deleted."""
        row = await self._forges.find_row(job.subject)
        if row is None or row.removed_at is not None or row.auth != ForgeAuth.APP:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(WEBHOOK_REDELIVERY, job.subject)
            return None
        async with without_transaction(self._sessions) as session:
            now: datetime = (await session.execute(select(func.clock_timestamp()))).scalar_one()
        await self._redeliver(job.subject, since=now - _LOOK_BACK)
        return now + _INTERVAL

    async def _redeliver(self, forge_id: str, *, since: datetime) -> None:
        try:
            adapter = await self._forges.adapter(forge_id)
            assert isinstance(adapter, GithubAdapter)
            repeated = await adapter.redeliver_failed(since=since)
        except ForgeError as error:
            log.warning("webhooks not redelivered forge=%s error=%s", forge_id, error)
            return
        if repeated:
            log.info("webhooks redelivered forge=%s count=%d", forge_id, len(repeated))
