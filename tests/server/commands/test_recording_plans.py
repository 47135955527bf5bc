"""Query plans: recording one command costs the same with any number of other commands and any amount of output."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from sandbox_server.commands.recording_repository import (
    LogWrite,
    NewGap,
    NewRecord,
    RecordingRepository,
)
from sandbox_server.db.session import create_engine
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.query_plans import explain, reads_by_index, rows_read, vacuum

pytestmark = EVERY_POSTGRES

MINUTE = timedelta(minutes=1)
SIZES = dict.fromkeys(("stdout_size", "stderr_size", "stdout_cut", "stderr_cut"), 10)
# Of twenty thousand commands two hundred run, and seven have lost who records them.
_MANY = """
INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'T', 100, 100);
INSERT INTO streams (tenant_id, next_seq) VALUES ('t', 100001);
INSERT INTO sandboxes (id, tenant_id, template, timeout) VALUES ('s', 't', 'base', interval '1 hour');
INSERT INTO commands (id, tenant_id, sandbox_id, cmd, state, ended_at, recorded_by, recorded_until, last_seq)
SELECT 'c' || n, 't', 's', 'true', CASE WHEN n < 200 THEN 'running' ELSE 'exited' END,
    CASE WHEN n >= 200 THEN now() END, 'me',
    CASE WHEN n < 7 THEN now() - interval '1 minute' ELSE now() + interval '1 hour' END, 100000
FROM generate_series(0, 19999) AS n;
INSERT INTO command_output (sandbox_id, seq, command_id, type, start, content)
SELECT 's', n, 'c' || n % 1000, 'stdout', n / 1000 * 10, '0123456789' FROM generate_series(1, 100000) AS n
"""


@pytest.fixture
async def large_database(database_url):
    database = create_engine(database_url)
    async with database.begin() as connection:
        for statement in _MANY.split(";"):
            await connection.execute(text(statement))
    await vacuum(database, "command_output", "commands", "streams")
    yield database
    await database.dispose()


async def test_recording_query__output_is_stored_without_reading_existing_output(large_database):
    growths = [
        LogWrite(
            command_id=f"c{number}",
            last_seq=100_000,
            records=[NewRecord("stdout", 1000, b"more", {})] * 3,
            deleted=[10_000 + number, 11_000 + number],
            gaps=[NewGap(12_000 + number, 100, {"stream": "stdout", "size": 30})],
            changes=SIZES,
        )
        for number in range(10, 20)
    ]

    async def act(session):
        stored = await RecordingRepository(session).store("t", growths, by="me", lease=MINUTE)
        assert len(stored) == len(growths)

    (plan,) = await explain(large_database, act)
    assert rows_read(plan, "commands") <= 3 * len(growths)
    assert rows_read(plan, "command_output") <= 3 * len(growths)


async def test_recording_query__lapsed_commands_are_found_by_index(large_database):
    async def act(session):
        claimed = await RecordingRepository(session).claim_lapsed(
            by="other", lease=MINUTE, limit=100
        )
        assert len(claimed) == 7

    (plan,) = await explain(large_database, act)
    assert reads_by_index(plan, "commands_recorded_until_idx")
    assert rows_read(plan, "commands") <= 4 * 7


async def test_recording_query__leases_are_extended_by_id(large_database):
    ids = [f"c{number}" for number in range(50)]

    async def act(session):
        assert await RecordingRepository(session).extend(ids, by="me", lease=MINUTE) == set(ids)

    (plan,) = await explain(large_database, act)
    assert rows_read(plan, "commands") <= 3 * len(ids)
