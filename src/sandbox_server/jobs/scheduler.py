import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.jobs import LeasedJob, LeaseLost
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.jobs.statements import DUE
from sandbox_server.jobs.worker import Handler, Worker
from sandbox_server.metrics.instruments import JOB_LAG_SECONDS
from sandbox_server.providers.protocol.limits import ProviderLimits

log = logging.getLogger(__name__)

# A job may stay due for as long as a transaction holds its row.
_SHORTEST_SLEEP = timedelta(milliseconds=50)
# Between two looks, so that what hundreds of transactions a second make due is taken together.
_COALESCE = timedelta(milliseconds=5)


class SandboxQueueScheduler:
    """Has jobs carried out as they become due, as many at a time as there are places.

    Its only timer is the sleep until the instant at which the database says that a job is due.
    Notifications shorten the sleep; without them it is as long as the policy lets it be.
    """

    def __init__(
        self,
        sessions: Sessions,
        handlers: Mapping[str, Handler],
        notifications: Notifications,
        *,
        policy: Policy | None = None,
        limits: ProviderLimits | None = None,
    ) -> None:
        self._sessions = sessions
        self._kinds = tuple(handlers)
        self._policy = policy or Policy()
        self._worker = Worker(sessions, handlers, self._policy)
        self._free_slots = self._policy.slots
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._stopping = False
        self._full = False
        self._limits = limits or ProviderLimits(1)
        self._limits.share(self._policy.slots, on_free=self._woken.set)
        notifications.listen(DUE, lambda _: self._woken.set())

    async def lease(self, session: AsyncSession, kind: str, subject: str) -> LeasedJob | None:
        """Take the subject's job in the caller's transaction, for `work` once that has committed.

        None: another holds it, and will look again before it lets go.
        """
        return await JobRepository(session).lease(
            kind, subject, worker=self._worker.name, lease=self._policy.lease
        )

    async def work(self, job: LeasedJob) -> Exception | None:
        """Carry out a job that `lease` gave; gives what it failed with, if its next attempt is set."""
        return await self._worker.work(job)

    def begin(self, job: LeasedJob) -> None:
        """Carry out a job that `lease` gave, in the background: whatever becomes of who asked for it."""
        task = asyncio.create_task(self._work(job))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    async def run(self) -> None:
        """Work until told to stop; cancelled, it gives back what it has not finished."""
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._worker.heartbeat.run())
            try:
                await self._start_until_stopped()
            finally:
                grace = self._policy.grace if self._stopping else timedelta()
                await self._worker.finish(grace=grace)
                beating.cancel()

    def stop(self) -> None:
        """Take nothing new; `run` returns when what is under way is finished, or given back."""
        self._stopping = True
        self._woken.set()

    async def _start_until_stopped(self) -> None:
        while not self._stopping:
            self._woken.clear()
            until_next = await self._start_due()
            if not self._full:
                await asyncio.sleep(_COALESCE.total_seconds())
            await self._sleep(until_next)

    async def _start_due(self) -> timedelta:
        """Start what is due, as far as there are places, and tell how long to sleep."""
        # Who is only about to settle has left its place, but not for more than as many again.
        slots = min(self._free_slots, 2 * self._policy.slots - len(self._tasks))
        self._full = slots == 0
        if self._full:
            return self._policy.look_again
        try:
            jobs, until_next = await self._claim(slots)
        except (SQLAlchemyError, OSError) as error:
            log.warning("no jobs claimed error=%r", error)
            return self._policy.look_again
        self._full = len(jobs) == slots
        for job in jobs:
            JOB_LAG_SECONDS.labels(job.kind).observe(job.lag.total_seconds())
            self._free_slots -= 1
            task = asyncio.create_task(self._work_in_slot(job))
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return min(max(until_next, _SHORTEST_SLEEP), self._policy.look_again)

    async def _claim(self, slots: int) -> tuple[Sequence[LeasedJob], timedelta]:
        avoid = self._limits.saturated
        async with without_transaction(self._sessions) as session:
            repository = JobRepository(session)
            jobs = await repository.claim(
                worker=self._worker.name,
                kinds=self._kinds,
                limit=slots,
                lease=self._policy.lease,
                avoid=avoid,
            )
            if len(jobs) == slots:
                return jobs, self._policy.look_again
            until_next = await repository.find_next_due(kinds=self._kinds, avoid=avoid)
        return jobs, self._policy.look_again if until_next is None else until_next

    async def _work_in_slot(self, job: LeasedJob) -> None:
        with self._limits.job():
            await self._work(job, release=self._release_slot)

    async def _work(self, job: LeasedJob, *, release: Callable[[], None] = lambda: None) -> None:
        try:
            await self._worker.work(job, release=release)
        except (LeaseLost, SQLAlchemyError, OSError) as error:
            log.warning("not settled kind=%s subject=%s error=%r", job.kind, job.subject, error)

    def _release_slot(self) -> None:
        self._free_slots += 1
        self._look_if_full()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._look_if_full()

    def _look_if_full(self) -> None:
        if self._full:
            self._woken.set()

    async def _sleep(self, longest: timedelta) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(longest.total_seconds()):
                await self._woken.wait()
