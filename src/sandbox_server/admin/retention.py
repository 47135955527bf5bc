import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.admin.retention_repository import RetentionRepository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import HOUSEKEEPING, SANDBOX, SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository

log = logging.getLogger(__name__)

HOURLY = "hourly"

_INTERVAL = timedelta(hours=1)
_BATCH = 500  # a transaction's worth: short, so that nobody waits for it


@dataclass(frozen=True, kw_only=True)
class RetentionPeriods:
    """How long is kept what is of use to nobody but who looks back."""

    ended: timedelta = timedelta(days=7)
    events: timedelta = timedelta(days=30)
    output: timedelta = timedelta(days=7)
    idempotency: timedelta = timedelta(days=1)


class RetentionJob:
    """Removes once an hour what has been kept long enough."""

    def __init__(self, sessions: Sessions, retention: RetentionPeriods) -> None:
        self._sessions = sessions
        self._retention = retention

    async def ensure(self) -> None:
        """Have it done from now on."""
        async with self._sessions.begin() as session:
            await JobRepository(session).due(HOUSEKEEPING, HOURLY)

    async def work(self, _job: LeasedJob) -> datetime:
        kept = self._retention
        removed = {
            "sandboxes": await self._all(
                lambda r: r.remove_ended(kept.ended, job_kinds=[SANDBOX, SERVICES])
            ),
            "commands": await self._all(lambda r: r.remove_commands(kept.output)),
            "events": await self._all(lambda r: r.remove_events(kept.events)),
            "requests": await self._all(lambda r: r.remove_idempotency_keys(kept.idempotency)),
            "tickets": await self._all(lambda r: r.remove_tickets()),
            "logins": await self._all(lambda r: r.remove_logins()),
        }
        if any(removed.values()):
            log.info("removed %s", " ".join(f"{what}={n}" for what, n in removed.items()))
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).clock() + _INTERVAL

    async def _all(self, remove: Callable[[RetentionRepository], Awaitable[int]]) -> int:
        total = 0
        while True:
            async with self._sessions.begin() as session:
                count = await remove(RetentionRepository(session, limit=_BATCH))
            total += count
            if count < _BATCH:
                return total
