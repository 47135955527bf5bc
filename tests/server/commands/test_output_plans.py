"""Query plans: reading one command costs the same with any number of other commands and any amount of output."""

import pytest
from sqlalchemy import text

from sandbox_server.commands.terminal_repository import TerminalRepository
from sandbox_server.db.session import create_engine
from sandbox_server.domain.commands import TerminalSize
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.query_plans import explain, reads_by_index, rows_read, vacuum

pytestmark = EVERY_POSTGRES

_INDEX = "command_output_command_id_seq_idx"
_MANY = """
INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'T', 100, 100);
INSERT INTO streams (tenant_id, next_seq) VALUES ('t', 100001);
INSERT INTO sandboxes (id, tenant_id, template, timeout) VALUES ('s', 't', 'base', interval '1 hour');
INSERT INTO commands (id, tenant_id, sandbox_id, cmd) SELECT 'c' || n, 't', 's', 'true' FROM generate_series(0, 99) AS n;
INSERT INTO command_output (sandbox_id, seq, command_id, type, start, content)
SELECT 's', n, 'c' || n % 100, 'stdout', n / 100 * 10, '0123456789' FROM generate_series(1, 100000) AS n
"""


@pytest.fixture
async def large_database(database_url):
    database = create_engine(database_url)
    async with database.begin() as connection:
        for statement in _MANY.split(";"):
            await connection.execute(text(statement))
    await vacuum(database, "command_output", "commands")
    yield database
    await database.dispose()


async def test_output_query__a_page_is_read_by_sequence_number(large_database):
    async def act(session):
        output = CommandOutputRepository(session)
        assert len((await output.list_after("c7", after=50_000, limit=20)).records) == 20
        await output.find_tail("c7", count=20)

    for plan in await explain(large_database, act):
        assert reads_by_index(plan, _INDEX)
        assert rows_read(plan, "command_output") <= 22


async def test_output_query__a_stream_is_read_without_other_commands(large_database):
    async def act(session):
        output = CommandOutputRepository(session)
        await output.list_stream("c7", RecordType.STDOUT, offset=9_000, limit=20)
        await output.list_ends("c7", max_bytes=100)

    for plan in await explain(large_database, act):
        assert reads_by_index(plan, _INDEX)
        assert rows_read(plan, "command_output") <= 1_000


async def test_terminal_query__position_and_size_are_found_without_other_commands(large_database):
    async def act(session):
        terminals = TerminalRepository(session)
        await terminals.find_position("c7", offset=9_000)
        await terminals.find_position("c7", offset=10_000)
        await terminals.note_size("c7", TerminalSize(cols=100, rows=30))

    for plan in await explain(large_database, act):
        assert rows_read(plan, "command_output") <= 2_000
        assert rows_read(plan, "commands") <= 2
