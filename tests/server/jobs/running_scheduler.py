"""Schedulers as a server runs them, and work for them that tests can watch."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import Sessions, create_sessions
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.jobs.worker import Handler
from tests.server.jobs.job_actions import KIND

POLLING = Policy(look_again=timedelta(milliseconds=20), grace=timedelta(seconds=60))
# A scheduler that does not hear of what is due finds out when the test is over.
HEARING = replace(POLLING, look_again=timedelta(hours=1))
NO_OTHERS: Mapping[str, Handler] = {}


class Work:
    """Notes what is begun, and finishes it when it is let."""

    def __init__(self, *, at: datetime | None = None) -> None:
        self._at = at
        self._begun = asyncio.Condition()
        self.jobs: list[LeasedJob] = []
        self.under_way = 0
        self.most_at_once = 0
        self.may_finish = asyncio.Event()

    async def __call__(self, job: LeasedJob) -> datetime | None:
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            async with self._begun:
                self.jobs.append(job)
                self._begun.notify_all()
            await self.may_finish.wait()
        finally:
            self.under_way -= 1
        return self._at

    async def wait_begun(self, times: int) -> None:
        async with asyncio.timeout(60), self._begun:
            await self._begun.wait_for(lambda: len(self.jobs) >= times)


async def lease(scheduler: SandboxQueueScheduler, sessions: Sessions) -> LeasedJob:
    """Commit an intent whose job the scheduler's own process has."""
    async with sessions.begin() as session:
        job = await scheduler.lease(session, KIND, "one")
    assert job is not None
    return job


@asynccontextmanager
async def running_scheduler(
    database: AsyncEngine,
    handler: Handler,
    *,
    policy: Policy = POLLING,
    others: Mapping[str, Handler] = NO_OTHERS,
) -> AsyncIterator[SandboxQueueScheduler]:
    """Run a scheduler, with or without the word that shortens its waits, and stop it in good order."""
    notifications = Notifications(database)
    scheduler = SandboxQueueScheduler(
        create_sessions(database), {KIND: handler, **others}, notifications, policy=policy
    )
    running = asyncio.create_task(scheduler.run())
    hearing = asyncio.create_task(notifications.run())
    try:
        yield scheduler
    finally:
        scheduler.stop()
        await running
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing
