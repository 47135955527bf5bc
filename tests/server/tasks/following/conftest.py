from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from sandbox_server.db.models import ForgeCheck, ForgeWrite, Job, PullRequest, Task, TaskMessage
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import FORGE_WRITES, PULL_REQUEST
from sandbox_server.repositories.service import Repositories, RepositoryChanges
from sandbox_server.tasks.following.follower import PullRequestFollower
from sandbox_server.tasks.outbox import OutboxWorker
from sandbox_server.tasks.service import Tasks
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import MemoryForge, MemoryForges, add_forge, add_tenant
from tests.server.support.task_rows import add_pull, add_task, pull_facts


def job_of(kind, subject):
    return LeasedJob(id=1, kind=kind, subject=subject, attempts=1, leased_by="a")


@dataclass
class Followed:
    """One task in review with its pull request #5, and a server that follows it."""

    sessions: Any
    forges: MemoryForges
    forge: MemoryForge
    forge_id: str
    repositories: Repositories
    repository_id: str
    task_id: str
    caller: Any

    async def look(self):
        """Do what the pull request's job does once; gives when it is due again."""
        tasks = Tasks(self.sessions, self.repositories)
        follower = PullRequestFollower(self.sessions, self.forges, tasks)
        return await follower.work(job_of(PULL_REQUEST, f"{self.repository_id}/5"))

    async def write(self):
        """Do what the job of the outbox does once."""
        worker = OutboxWorker(self.sessions, self.forges)
        return await worker.work(job_of(FORGE_WRITES, self.forge_id))

    async def set_settings(self, **settings):
        await self.repositories.update(
            self.caller, self.repository_id, RepositoryChanges(settings=settings)
        )
        await self.set_task(settings=settings)

    async def set_task(self, **columns):
        async with self.sessions.begin() as session:
            await session.execute(update(Task).where(Task.id == self.task_id).values(columns))

    async def pass_time(self, duration: timedelta):
        """Let what was seen of checks, and messages, be that much older."""
        async with self.sessions.begin() as session:
            await session.execute(update(ForgeCheck).values(seen_at=ForgeCheck.seen_at - duration))

    async def messages(self):
        async with self.sessions() as session:
            found = select(TaskMessage).where(TaskMessage.task_id == self.task_id)
            return (await session.scalars(found.order_by(TaskMessage.id))).all()

    async def task(self):
        async with self.sessions() as session:
            return await session.get_one(Task, self.task_id)

    async def pull(self):
        async with self.sessions() as session:
            return await session.get_one(PullRequest, (self.repository_id, 5))

    async def writes(self):
        async with self.sessions() as session:
            return (await session.scalars(select(ForgeWrite).order_by(ForgeWrite.id))).all()

    async def has_job(self, kind):
        async with self.sessions() as session:
            return await session.scalar(select(Job.id).where(Job.kind == kind)) is not None


@pytest.fixture
async def followed(sessions, vault):
    caller = caller_of(await add_tenant(sessions))
    forges, forge = MemoryForges(sessions), MemoryForge()
    forge_id = await add_forge(sessions, caller.tenant_id)
    forges.adapters[forge_id] = forge
    repositories = Repositories(sessions, vault, forges)
    entry = await repositories.create(
        caller, forge="github", full_name="acme/widgets", wanted=RepositoryChanges()
    )
    task_id = await add_task(sessions, entry.row)
    forge.pulls[5] = pull_facts(updated_at=forge.tick())
    await add_pull(sessions, task_id, forge.pulls[5])
    return Followed(sessions, forges, forge, forge_id, repositories, entry.row.id, task_id, caller)
