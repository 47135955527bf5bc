"""The queries of the queue cost the same however many jobs there are."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sandbox_server.db.jobs import JobRepository
from sandbox_server.db.session import create_sessions
from tests.server.databases import EVERY_POSTGRES
from tests.server.scheduler.acts import KIND, MINUTE, claim, in_

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
    async with database.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("VACUUM ANALYZE jobs"))
    return database


async def test_a_claim_reads_little_more_than_it_takes(many_jobs):
    async def act(jobs):
        await jobs.claim(worker="a", kinds=[KIND], limit=50, lease=MINUTE)

    [plan] = await _plans(many_jobs, act)
    assert _reads_by_index(plan, "jobs_run_at_id_idx")
    assert sum(node.get("Rows Removed by Filter", 0) for node in _nodes(plan)) <= _LEASED


async def test_a_claim_reads_no_more_where_the_planner_has_no_statistics_yet(database):
    async with database.begin() as connection:
        await connection.execute(text("ALTER TABLE jobs SET (autovacuum_enabled = off)"))
        await connection.execute(_ALL_DUE, {"kind": KIND})

    async def act(jobs):
        await jobs.claim(worker="a", kinds=[KIND, "another"], limit=256, lease=MINUTE)

    [plan] = await _plans(database, act)
    assert _reads_by_index(plan, "jobs_run_at_id_idx")
    assert max(node["Actual Rows"] for node in _nodes(plan)) <= 256


async def test_one_job_among_many_is_found_by_its_index(many_jobs, sessions):
    leased = await claim(sessions, limit=50)

    async def find_next(jobs):
        await jobs.find_next_due(kinds=[KIND])

    async def end_or_extend(jobs):
        await jobs.extend(leased, lease=MINUTE)
        await jobs.settle_unlocked(dict.fromkeys(leased, in_(hours=100)))

    [next_due] = await _plans(many_jobs, find_next)
    assert _reads_by_index(next_due, "jobs_run_at_id_idx", only_part=False)
    for plan in await _plans(many_jobs, end_or_extend):
        assert _reads_by_index(plan, "jobs_pkey")


async def _plans(
    database: AsyncEngine, act: Callable[[JobRepository], Awaitable[None]]
) -> list[dict[str, Any]]:
    """Have the very statements explained that an act makes."""
    statements: list[tuple[str, Any]] = []

    @event.listens_for(database.sync_engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, parameters, _context, _many):
        statements.append((statement, parameters))

    async with create_sessions(database)() as session:
        await act(JobRepository(session))
        await session.rollback()
    event.remove(database.sync_engine, "before_cursor_execute", note)
    async with database.connect() as connection:
        explained = [
            await connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
            )
            for statement, parameters in statements
        ]
    return [result.scalar_one()[0]["Plan"] for result in explained]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _reads_by_index(plan: dict[str, Any], index: str, *, only_part: bool = True) -> bool:
    nodes = list(_nodes(plan))
    return all(node["Node Type"] != "Seq Scan" for node in nodes) and any(
        node.get("Index Name") == index and ("Index Cond" in node or not only_part)
        for node in nodes
    )
