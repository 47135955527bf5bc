from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, insert

from benchmarks.queues.drain import AT_ONCE, Drain
from benchmarks.timing import timed
from sandbox_server.db.models import Job
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.scheduler import SandboxQueueScheduler

_KIND = "nothing"


@asynccontextmanager
async def ours(url: str) -> AsyncIterator[Drain]:
    """Run our queue: each job is leased, postponed by an hour and kept."""
    engine = create_engine(url)
    await upgrade(engine)
    sessions = create_sessions(engine)

    async def drain(jobs: int) -> float:
        now = datetime.now(UTC)
        rows = [{"kind": _KIND, "subject": str(n), "run_at": now} for n in range(jobs)]
        async with sessions.begin() as session:
            await session.execute(delete(Job))
            await session.execute(insert(Job), rows)
        left = jobs

        async def do_nothing(_job: LeasedJob) -> datetime:
            nonlocal left
            left -= 1
            if not left:
                scheduler.stop()
            return now + timedelta(hours=1)

        scheduler = SandboxQueueScheduler(
            sessions, {_KIND: do_nothing}, Notifications(engine), policy=Policy(slots=AT_ONCE)
        )
        elapsed, _ = await timed(scheduler.run())
        return elapsed

    yield drain
    await engine.dispose()
