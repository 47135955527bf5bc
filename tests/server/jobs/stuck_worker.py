"""A process with a scheduler whose jobs never end; says which it has begun."""

import asyncio
import sys
from datetime import datetime, timedelta

from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from tests.server.jobs.job_actions import KIND

LEASE = timedelta(seconds=3)


async def _hang(job: LeasedJob) -> datetime | None:
    print(job.subject, flush=True)  # noqa: T201
    await asyncio.Event().wait()
    return None


async def _run(url: str) -> None:
    engine = create_engine(url)
    scheduler = SandboxQueueScheduler(
        create_sessions(engine), {KIND: _hang}, Notifications(engine), policy=Policy(lease=LEASE)
    )
    await scheduler.run()


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
