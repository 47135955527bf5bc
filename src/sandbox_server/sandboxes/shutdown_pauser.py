import asyncio
import logging
from contextlib import suppress
from datetime import datetime, timedelta

from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.events import Cause
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import SANDBOX_CHANNEL
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0  # a notification may be lost
_CAUSE = TransitionCause(
    cause=Cause.SHUTDOWN,
    reason="Paused because the server is stopping; the sandbox resumes when it is used.",
)


class ShutdownPauser:
    """Pauses every sandbox before a server stops together with its engine."""

    def __init__(
        self, sessions: Sessions, admission: Admission, notifications: Notifications
    ) -> None:
        self._sessions = sessions
        self._admission = admission
        self._stops = False
        self._changed = asyncio.Event()
        notifications.listen(SANDBOX_CHANNEL, lambda _: self._changed.set())

    async def admit(self, job: LeasedJob) -> datetime | None:
        """Admit queued sandboxes, until the shutdown begins."""
        return None if self._stops else await self._admission.admit_queued(job)

    async def pause_all(self, *, within: timedelta) -> bool:
        """Pause every sandbox; returns whether all slots are free."""
        self._stops = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                while not await self._all_paused():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY_S):
                            await self._changed.wait()
                return True
        log.warning("not every sandbox was paused in time, the engine keeps running")
        return False

    async def _all_paused(self) -> bool:
        self._changed.clear()
        async with self._sessions.begin() as session:
            for sandbox_id in await SandboxRepository(session).target_all_paused(_CAUSE):
                await JobRepository(session).due(SANDBOX, sandbox_id)
        async with without_transaction(self._sessions) as session:
            return not await SandboxRepository(session).any_occupies_slot()
