"""Admission by several servers at once, and by the scheduler of one."""

import asyncio
from random import Random

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.repositories.slots import runs
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import HEARING, Work, running_scheduler
from tests.server.support.sandbox_rows import add, backend, read, sandbox, states, tenant


@pytest.fixture
async def replicas(database_url):
    """Give two servers' pools of connections to one database."""
    engines = [create_engine(database_url, pool_size=20, max_overflow=0) for _ in range(2)]
    yield [create_sessions(engine) for engine in engines]
    for engine in engines:
        await engine.dispose()


async def create(sessions, row):
    """Insert a sandbox and admit it if there is room, as a request does."""
    async with sessions.begin() as session:
        session.add(row)
        await session.flush()
        await Admission(sessions).admit(session, row.candidates, own=row.id)


async def end(sessions, sandbox_id):
    """Commit that a sandbox is gone, and that its place is free."""
    async with sessions.begin() as session:
        row, ended_at = await SandboxRepository(session).lock(sandbox_id)
        row.state, row.ended_at, row.target = State.STOPPED, ended_at, Target.GONE
        assert row.backend
        await JobRepository(session).due(ADMISSION, row.backend)


async def taking_places(sessions, *wanted):
    async with sessions() as session:
        rows = await session.scalars(select(Sandbox).where(runs, *wanted))
        return len(rows.all())


async def test_admission__two_servers_never_exceed_the_capacity(replicas):
    await add(replicas[0], tenant(max_running=1000), backend(capacity=7))

    await asyncio.gather(*(create(replicas[n % 2], sandbox()) for n in range(200)))

    assert await taking_places(replicas[0]) == 7


async def test_admission__two_servers_never_exceed_a_tenants_quota(replicas):
    names = [f"b{number}" for number in range(4)]
    await add(replicas[0], tenant(max_running=5), tenant("u"), *map(backend, names))
    rows = [sandbox(candidates=[names[n % 4]], tenant_id="tu"[n % 5 == 0]) for n in range(100)]

    await asyncio.gather(*(create(replicas[n % 2], row) for n, row in enumerate(rows)))

    assert await taking_places(replicas[0], Sandbox.tenant_id == "t") == 5
    assert await taking_places(replicas[0], Sandbox.tenant_id == "u") == 20


async def test_admission__a_released_slot_is_taken_at_once(database, sessions):
    running = [sandbox(State.RUNNING) for _ in range(3)]
    waiting = [sandbox() for _ in range(3)]
    await add(sessions, tenant(), backend(capacity=3), *running, *waiting)
    begun = Work()
    begun.may_finish.set()
    admission = {ADMISSION: Admission(sessions).admit_queued}

    async with running_scheduler(database, begun, policy=HEARING, others=admission):
        # The first two may be found by the looks that starting and connecting make it take.
        for number, row in enumerate(running, 1):
            await end(sessions, row.id)
            await begun.wait_begun(number)

    assert [job.subject for job in begun.jobs] == [row.id for row in waiting]


@pytest.mark.parametrize(
    ("capacity", "quota"), [(2, 2), pytest.param(100, 1, marks=pytest.mark.slow)]
)
async def test_admission__every_queued_sandbox_is_admitted_in_the_end(
    database, replicas, capacity, quota
):
    """Each who starts ends at once, so that all places change hands all the time."""
    sessions = replicas[0]
    chance = Random(1)
    names = ["x", "y", "z"]
    await add(sessions, *(tenant(id_, max_running=quota) for id_ in "abc"))
    await add(sessions, *(backend(name, capacity=capacity) for name in names))
    rows = [
        sandbox(
            tenant_id=chance.choice("abc"),
            priority=chance.randrange(3),
            candidates=chance.sample(names, chance.randint(1, 2)),
        )
        for _ in range(150)
    ]

    async def end_it(job):
        await end(sessions, job.subject)

    async def request(row):
        pool = chance.choice(replicas)
        await create(pool, row)
        if (await read(pool, row))[0].state is State.STARTING:
            await end(pool, row.id)

    async def all_served():
        return State.QUEUED not in await states(sessions, *rows)

    admission = {ADMISSION: Admission(sessions).admit_queued}
    async with running_scheduler(database, end_it, policy=HEARING, others=admission):
        await asyncio.gather(*map(request, rows))
        await until(all_served, timeout=60)
