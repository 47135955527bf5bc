from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.due import waits_for_slot
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import serves
from sandbox_server.jobs.kinds import SANDBOX
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.sandboxes.reconciler import Reconciler
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of


class InlineJobs:
    """What this process sees to itself, since it has just written down that it is wanted."""

    def __init__(self, scheduler: SandboxQueueScheduler, reconciler: Reconciler) -> None:
        self._scheduler = scheduler
        self._reconciler = reconciler

    async def take(self, session: AsyncSession, row: Sandbox) -> LeasedJob | None:
        """Take the job of a sandbox that something can be done about, unless another holds it."""
        if serves(row.state, row.target) or waits_for_slot(deadlines_of(row)):
            return None
        return await self._scheduler.lease(session, SANDBOX, row.id)

    def begin(
        self, row: Sandbox, now: datetime, job: LeasedJob | None, *, admitted: bool = False
    ) -> None:
        """Begin, once all is committed; it goes on whatever becomes of who asked for it.

        `now` is the database's, as all instants are that the row's are compared with.
        `admitted` tells that this process has just given it its place, so nobody has begun anything yet.
        """
        if job is not None:
            self._reconciler.hand_over(row, now, fresh=admitted)
            self._scheduler.begin(job)
