"""The queries of the queue cost the same however many jobs there are."""

import pytest
from sqlalchemy import text

from sandbox_server.jobs.repository import JobRepository
from tests.server.jobs.job_actions import KIND, MINUTE, claim, in_
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.query_plans import explain, nodes, reads_by_index, vacuum

pytestmark = EVERY_POSTGRES

_LEASED = 100
_MANY_JOBS = text(
    "INSERT INTO jobs (kind, subject, run_at, leased_by, leased_until)"
    " SELECT :kind, n::text, clock_timestamp() + (n - 1000) * interval '1 second',"
    " CASE WHEN n <= :leased THEN 'a' END,"
    " CASE WHEN n <= :leased THEN clock_timestamp() + interval '1 hour' END"
    " FROM generate_series(1, 100000) AS n"
)
_ALL_DUE = text(
    "INSERT INTO jobs (kind, subject, run_at)"
    " SELECT :kind, n::text, clock_timestamp() FROM generate_series(1, 10000) AS n"
)


@pytest.fixture
async def many_jobs(database, sessions):
    """Fill the queue with 100,000 jobs, of which a thousand are due and a hundred of these leased."""
    async with sessions.begin() as session:
        await session.execute(_MANY_JOBS, {"kind": KIND, "leased": _LEASED})
    await vacuum(database, "jobs")
    return database


async def test_claim__query_plan_reads_few_more_rows_than_it_takes(many_jobs):
    async def act(session):
        await JobRepository(session).claim(worker="a", kinds=[KIND], limit=50, lease=MINUTE)

    [plan] = await explain(many_jobs, act)
    assert reads_by_index(plan, "jobs_run_at_id_idx")
    assert sum(node.get("Rows Removed by Filter", 0) for node in nodes(plan)) <= _LEASED


async def test_claim__query_plan_needs_no_statistics(database):
    async with database.begin() as connection:
        await connection.execute(text("ALTER TABLE jobs SET (autovacuum_enabled = off)"))
        await connection.execute(_ALL_DUE, {"kind": KIND})

    async def act(session):
        await JobRepository(session).claim(
            worker="a", kinds=[KIND, "another"], limit=256, lease=MINUTE
        )

    [plan] = await explain(database, act)
    assert reads_by_index(plan, "jobs_run_at_id_idx")
    assert max(node["Actual Rows"] for node in nodes(plan)) <= 256


async def test_job__query_plan_finds_one_by_its_index(many_jobs, sessions):
    leased = await claim(sessions, limit=50)

    async def find_next(session):
        await JobRepository(session).find_next_due(kinds=[KIND])

    async def end_or_extend(session):
        jobs = JobRepository(session)
        await jobs.extend(leased, lease=MINUTE)
        await jobs.ack_unlocked(dict.fromkeys(leased, in_(hours=100)))

    [next_due] = await explain(many_jobs, find_next)
    assert reads_by_index(next_due, "jobs_run_at_id_idx", only_part=False)
    for plan in await explain(many_jobs, end_or_extend):
        assert reads_by_index(plan, "jobs_pkey")
