"""What tests do to jobs, one transaction each."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Job
from sandbox_server.db.session import Sessions
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.repository import JobRepository

KIND = "sandbox"
MINUTE = timedelta(minutes=1)
LAPSED = timedelta(seconds=-1)


def in_(**duration: float) -> datetime:
    return datetime.now(UTC) + timedelta(**duration)


async def enqueue(sessions: Sessions, *subjects: str, at: datetime | None = None) -> None:
    async with sessions.begin() as session:
        for subject in subjects:
            await JobRepository(session).due(KIND, subject, at)


async def claim_in(
    session: AsyncSession, worker: str = "a", *, limit: int = 10, lease: timedelta = MINUTE
) -> Sequence[LeasedJob]:
    return await JobRepository(session).claim(worker=worker, kinds=[KIND], limit=limit, lease=lease)


async def claim(
    sessions: Sessions, worker: str = "a", *, limit: int = 10, lease: timedelta = MINUTE
) -> Sequence[LeasedJob]:
    async with sessions.begin() as session:
        return await claim_in(session, worker, limit=limit, lease=lease)


async def settle(sessions: Sessions, job: LeasedJob, at: datetime | None = None) -> None:
    async with sessions.begin() as session:
        await JobRepository(session).ack(job, at)


async def fail(sessions: Sessions, job: LeasedJob, *, max_attempts: int = 2) -> None:
    async with sessions.begin() as session:
        await JobRepository(session).fail(
            job, error="it broke", delay=MINUTE, max_attempts=max_attempts
        )


async def read(sessions: Sessions, subject: str) -> Job:
    async with sessions() as session:
        return (await session.scalars(select(Job).where(Job.subject == subject))).one()


async def wait_for_a_lock(sessions: Sessions) -> None:
    """Wait until some transaction of this database waits for another."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with sessions() as session, asyncio.timeout(30):
        while not await session.scalar(waiting):
            await session.commit()
            await asyncio.sleep(0.01)
