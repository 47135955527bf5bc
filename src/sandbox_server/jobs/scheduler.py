import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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

# A job stays due while another transaction holds its row.
_SHORTEST_SLEEP = timedelta(milliseconds=50)
# Between two claims, so that jobs that many transactions make due are claimed together.
_COALESCE = timedelta(milliseconds=5)


class SandboxQueueScheduler:
    """Runs jobs as they become due, at most as many at once as there are slots.

    The only timer is the sleep until the next job in the database is due. Notifications wake the
    scheduler earlier; without them it polls at the interval of its policy.
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
        self._handlers = dict(handlers)
        self._kinds = tuple(self._handlers)
        self._policy = policy or Policy()
        self._worker = Worker(sessions, self._handlers, self._policy)
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
        """Lease the subject's job in the caller's transaction, to `work` on it after the commit.

        None: another process holds the lease, and looks at the subject again before it ends.
        """
        return await JobRepository(session).lease(
            kind, subject, worker=self._worker.name, lease=self._policy.lease
        )

    async def work(self, job: LeasedJob) -> Exception | None:
        """Work on a job from `lease`; returns the error of a failed attempt whose retry is scheduled."""
        return await self._worker.work(job)

    def begin(self, job: LeasedJob, *, context: object | None = None) -> None:
        """Work on a job from `lease` in the background, independently of the caller.

        The handler gets `context`: what the commit that leased the job knows about the subject.
        """
        task = asyncio.create_task(self._work(replace(job, context=context)))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    def add_handlers(self, handlers: Mapping[str, Handler]) -> None:
        """Add handlers, before `run`, of objects that need the scheduler themselves."""
        self._handlers.update(handlers)
        self._kinds = tuple(self._handlers)

    async def run(self) -> None:
        """Work until `stop`; when cancelled, release unfinished jobs."""
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._worker.heartbeat.run())
            try:
                await self._start_until_stopped()
            finally:
                grace = self._policy.grace if self._stopping else timedelta()
                await self._worker.finish(grace=grace)
                beating.cancel()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the current jobs are finished or released."""
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
        """Start due jobs up to the number of free slots; returns how long to sleep."""
        # A job waiting for its ack does not occupy a slot, but the total stays below twice the slots.
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
            log.warning(
                "job not acknowledged kind=%s subject=%s error=%r", job.kind, job.subject, error
            )

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
