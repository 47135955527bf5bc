import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.admin.retention_repository import RetentionRepository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import CHECKOUT, DESKTOP, HOUSEKEEPING, SANDBOX, SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository

log = logging.getLogger(__name__)

HOURLY = "hourly"

_INTERVAL = timedelta(hours=1)
_BATCH = 500  # rows per transaction: short, so that it blocks nobody


@dataclass(frozen=True, kw_only=True)
class RetentionPeriods:
    """How long ended sandboxes, events, output, recordings, idempotency keys and webhook deliveries are kept."""

    ended: timedelta = timedelta(days=7)
    events: timedelta = timedelta(days=30)
    output: timedelta = timedelta(days=7)
    recordings: timedelta = timedelta(days=7)
    saves: timedelta = timedelta(days=30)
    idempotency: timedelta = timedelta(days=1)
    deliveries: timedelta = timedelta(days=7)


class RetentionJob:
    """Removes expired rows once an hour."""

    def __init__(self, sessions: Sessions, periods: RetentionPeriods) -> None:
        self._sessions = sessions
        self._periods = periods

    async def ensure(self) -> None:
        """Schedule the job."""
        async with self._sessions.begin() as session:
            await JobRepository(session).due(HOUSEKEEPING, HOURLY)

    async def work(self, _job: LeasedJob) -> datetime:
        periods = self._periods
        removed = {
            "sandboxes": await self._remove_all(
                lambda r: r.remove_ended(
                    periods.ended, job_kinds=[SANDBOX, SERVICES, CHECKOUT, DESKTOP]
                )
            ),
            "browsers": await self._remove_all(lambda r: r.remove_browser_sessions(periods.ended)),
            "commands": await self._remove_all(lambda r: r.remove_commands(periods.output)),
            "recordings": await self._remove_all(lambda r: r.remove_recordings(periods.recordings)),
            "saves": await self._remove_all(lambda r: r.remove_saves(periods.saves)),
            "pushes": await self._remove_all(lambda r: r.remove_pushes(periods.saves)),
            "events": await self._remove_all(lambda r: r.remove_events(periods.events)),
            "requests": await self._remove_all(
                lambda r: r.remove_idempotency_keys(periods.idempotency)
            ),
            "tickets": await self._remove_all(lambda r: r.remove_tickets()),
            "deliveries": await self._remove_all(lambda r: r.remove_deliveries(periods.deliveries)),
            "logins": await self._remove_all(lambda r: r.remove_logins()),
        }
        if any(removed.values()):
            log.info(
                "removed expired rows %s", " ".join(f"{what}={n}" for what, n in removed.items())
            )
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).clock() + _INTERVAL

    async def _remove_all(self, remove: Callable[[RetentionRepository], Awaitable[int]]) -> int:
        total = 0
        while True:
            async with self._sessions.begin() as session:
                count = await remove(RetentionRepository(session, limit=_BATCH))
            total += count
            if count < _BATCH:
                return total
