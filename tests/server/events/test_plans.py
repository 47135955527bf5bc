"""Query plans: a read costs as much as there is new data, whatever the length of the logs."""

import pytest
from sqlalchemy import text

from sandbox_server.db.session import create_engine
from sandbox_server.domain.commands import CommandKind
from sandbox_server.events.merged_repository import MergedLog, MergedLogRepository
from sandbox_server.log.event_repository import EventLogRepository
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.query_plans import explain, nodes, rows_read, vacuum

pytestmark = EVERY_POSTGRES

_MANY = """
INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'T', 100, 100);
INSERT INTO streams (tenant_id, next_seq) VALUES ('t', 100001);
INSERT INTO sandboxes (id, tenant_id, template, timeout)
SELECT 's' || n, 't', 'base', interval '1 hour' FROM generate_series(0, 999) AS n;
INSERT INTO commands (id, tenant_id, sandbox_id, cmd) SELECT 'c' || n, 't', 's' || n, 'true' FROM generate_series(0, 999) AS n;
INSERT INTO command_output (sandbox_id, seq, command_id, type, start, content)
SELECT 's' || n % 1000, n, 'c' || n % 1000, 'stdout', 0, '0123456789' FROM generate_series(1, 100000, 2) AS n;
INSERT INTO events (tenant_id, sandbox_id, seq, type)
SELECT 't', 's' || n % 1000, n, 'sandbox.running' FROM generate_series(2, 100000, 2) AS n
"""
TABLES = ("command_output", "events", "commands", "sandboxes")


@pytest.fixture
async def large_database(database_url):
    database = create_engine(database_url)
    async with database.begin() as connection:
        for statement in _MANY.split(";"):
            await connection.execute(text(statement))
    await vacuum(database, *TABLES)
    yield database
    await database.dispose()


def assert_reads_little(plan, *, most):
    assert sum(rows_read(plan, table) for table in TABLES) <= most, plan
    assert {node.get("Relation Name") for node in nodes(plan) if "Seq" in node["Node Type"]} <= {
        "streams"
    }


async def test_event_query__events_are_read_by_sequence_number(large_database):
    async def act(session):
        log = EventLogRepository(session)
        assert len((await log.read("t", after=50_000, limit=20)).rows) == 20
        assert len((await log.read("t", sandbox_id="s8", after=50_000, limit=20)).rows) == 20
        await log.find_tail("t", sandbox_id="s8", count=20)

    for plan in await explain(large_database, act):
        assert_reads_little(plan, most=25)


async def test_log_query__a_merged_log_is_read_by_the_numbers_of_each_sandbox(large_database):
    log = MergedLog(
        tenant_id="t", sandbox_ids=["s7", "s8", "s9"], events=True, kinds=[CommandKind.COMMAND]
    )

    async def act(session):
        merged = MergedLogRepository(session)
        state = await merged.find_state(log)
        part = await merged.read(log, after=50_000, until=state.last_seq, limit=20)
        assert len(part.events) + len(part.output) == 20
        await merged.find_tail(log, count=20)

    for plan in await explain(large_database, act):
        assert_reads_little(plan, most=150)
