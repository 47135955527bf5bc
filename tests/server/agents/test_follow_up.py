"""Pausing sandboxes after agent runs, tested on rows."""

import pytest
from sqlalchemy import select

from sandbox_server.agents.follow_up import PauseAfterRun
from sandbox_server.db.models import Command, Job, Sandbox, Tenant
from sandbox_server.domain.commands import CommandKind, CommandState
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import Target
from sandbox_server.jobs.kinds import AGENT_RUN
from sandbox_server.jobs.repository import JobRepository
from tests.server.support.rows import add_sandbox, now


@pytest.fixture
async def sandbox(sessions):
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name="a", max_running=9, max_queued=9))
    return await add_sandbox(sessions, tenant_id)


@pytest.fixture
def add(sessions, sandbox):
    async def add(state=CommandState.EXITED, kind=CommandKind.AGENT):
        ended_at = now() if state is CommandState.EXITED else None
        agent = {"agent": "claude", "afterwards": "to-be-paused"}
        run = Command(
            id=new_id(),
            tenant_id=sandbox.tenant_id,
            sandbox_id=sandbox.id,
            cmd="",
            kind=kind,
            state=state,
            ended_at=ended_at,
            agent=agent,
        )
        async with sessions.begin() as session:
            session.add(run)
            await JobRepository(session).due(AGENT_RUN, run.id)
        return run

    return add


@pytest.fixture
def look(sessions):
    """Check a run; returns whether it is to be checked again."""

    async def look(run):
        job = LeasedJob(id=1, kind=AGENT_RUN, subject=run.id, attempts=1, leased_by="a")
        return await PauseAfterRun(sessions).work(job) is not None

    return look


@pytest.fixture
def seen(sessions, sandbox):
    """Read the sandbox's target, a run's follow-up and the runs with jobs."""

    async def seen(run):
        async with sessions() as session:
            row = await session.get_one(Sandbox, sandbox.id)
            told = (await session.get_one(Command, run.id)).agent["afterwards"]
            jobs = await session.scalars(select(Job.subject).where(Job.kind == AGENT_RUN))
            return row.target, told, jobs.all()

    return seen


async def test_pause_after__a_running_run_is_checked_again(add, look, seen):
    run = await add(CommandState.RUNNING)
    assert await look(run)
    assert await seen(run) == (Target.RUNNING, "to-be-paused", [run.id])


async def test_pause_after__an_ended_run_pauses_its_sandbox_and_removes_its_job(add, look, seen):
    run = await add()
    assert not await look(run)
    assert await seen(run) == (Target.PAUSED, "paused", [])


async def test_pause_after__a_run_pauses_its_sandbox_only_once(add, look, seen, sessions, sandbox):
    run = await add()
    await look(run)
    async with sessions.begin() as session:
        (await session.get_one(Sandbox, sandbox.id)).target = Target.RUNNING
    await look(run)
    assert await seen(run) == (Target.RUNNING, "paused", [])


@pytest.mark.parametrize("kind", [CommandKind.COMMAND, CommandKind.TERMINAL, CommandKind.AGENT])
async def test_pause_after__other_running_commands_keep_the_sandbox_running(add, look, seen, kind):
    run, other = await add(), await add(CommandState.RUNNING, kind)
    assert not await look(run)
    assert await seen(run) == (Target.RUNNING, "in-use", [other.id])
