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
    """Pauses all that runs before the only server, and the engine with it, are stopped."""

    def __init__(
        self, sessions: Sessions, admission: Admission, notifications: Notifications
    ) -> None:
        self._sessions = sessions
        self._admission = admission
        self._resting = False
        self._changed = asyncio.Event()
        notifications.listen(SANDBOX_CHANNEL, lambda _: self._changed.set())

    async def admit(self, job: LeasedJob) -> datetime | None:
        """Give out free places, until all is put to rest: then who waits goes on waiting."""
        return None if self._resting else await self._admission.admit_queued(job)

    async def pause_all(self, *, within: timedelta) -> bool:
        """Pause all that runs; tells whether nothing has a place any more."""
        self._resting = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                while not await self._is_still():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY_S):
                            await self._changed.wait()
                return True
        log.warning("not all sandboxes were paused in time, so the engine is left to them")
        return False

    async def _is_still(self) -> bool:
        self._changed.clear()
        async with self._sessions.begin() as session:
            for sandbox_id in await SandboxRepository(session).target_all_paused(_CAUSE):
                await JobRepository(session).due(SANDBOX, sandbox_id)
        async with without_transaction(self._sessions) as session:
            return not await SandboxRepository(session).any_occupies_slot()
