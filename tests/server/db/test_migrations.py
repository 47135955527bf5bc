import asyncio
import sys

import pytest
from alembic import command
from sqlalchemy import inspect, text

from sandbox_server.db.models import METADATA, TABLES
from sandbox_server.db.schema_migrations import alembic_config, upgrade
from sandbox_server.db.session import create_engine
from tests.server.support.databases import ALWAYS_EVERY_POSTGRES, new_database

pytestmark = ALWAYS_EVERY_POSTGRES

UPGRADE = """
import asyncio, sys
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine

async def main():
    engine = create_engine(sys.argv[1])
    async with engine.connect():
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    await upgrade(engine)
    await engine.dispose()

asyncio.run(main())
"""


@pytest.fixture
async def empty_url(server_url):
    """Make a database without tables."""
    async with new_database(server_url, template="template0") as url:
        yield url


@pytest.fixture
async def empty(empty_url):
    engine = create_engine(empty_url)
    yield engine
    await engine.dispose()


async def alembic(engine, act, *arguments):
    """Run one of alembic's commands on a connection of the engine's."""

    def run(connection):
        config = alembic_config()
        config.attributes["connection"] = connection
        act(config, *arguments)

    async with engine.connect() as connection:
        await connection.run_sync(run)


async def tables(engine):
    async with engine.connect() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


async def test_migrations__match_the_models(database):
    await alembic(database, command.check)


async def test_migrations__create_the_models_constraints_and_defaults(database, empty):
    async with empty.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    assert await fine_print(database) == await fine_print(empty)


async def fine_print(engine):
    """Read what alembic does not compare."""
    constraints = """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid::regclass::text <> 'alembic_version' AND connamespace = 'public'::regnamespace"""
    columns = """
        SELECT table_name, column_name, column_default, collation_name, is_identity
        FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name <> 'alembic_version'"""
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename <> 'alembic_version' AND schemaname = 'public'"
    async with engine.connect() as connection:
        return [
            sorted(map(tuple, await connection.execute(text(query))))
            for query in (constraints, columns, indexes)
        ]


async def test_migrations__a_downgrade_removes_everything_and_the_upgrade_restores_it(database):
    before = await tables(database)
    await alembic(database, command.downgrade, "base")
    assert await tables(database) == {"alembic_version"}
    await upgrade(database)
    assert await tables(database) == before


async def test_migrations__rows_unknown_to_the_version_before_are_removed(database):
    """A downgrade leaves no run of an agent, and nobody waiting for what is never said to be ready."""
    await execute(database, WAITING_AND_RUN)
    await alembic(database, command.downgrade, "0009")
    assert await execute(database, "SELECT id, candidates FROM sandboxes") == [("s", ["here"])]
    assert await execute(database, "SELECT id FROM commands") == [("c",)]
    assert await execute(database, "SELECT kind FROM jobs") == [("sandbox",)]
    await upgrade(database)
    assert await execute(database, "SELECT has_services FROM sandboxes") == [(False,)]


WAITING_AND_RUN = """
    INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'a', 1, 1);
    INSERT INTO sandboxes (id, tenant_id, template, awaited_template_id, awaited_backends, timeout, has_services)
        VALUES ('s', 't', 'agent', 'x', '{here}', '1 hour', true);
    INSERT INTO commands (id, tenant_id, sandbox_id, cmd, kind, agent)
        VALUES ('c', 't', 's', '', 'command', null), ('r', 't', 's', '', 'agent', '{}');
    INSERT INTO command_output (sandbox_id, seq, command_id, type) VALUES ('s', 1, 'r', 'stdout');
    INSERT INTO jobs (kind, subject) VALUES ('sandbox', 's'), ('agent-run', 'r'), ('services', 's')"""


async def execute(engine, statements):
    async with engine.begin() as connection:
        for statement in statements.split(";"):
            done = await connection.execute(text(statement))
        return [tuple(row) for row in done] if done.returns_rows else []


async def test_migrations__an_upgrade_of_a_current_schema_changes_nothing(database):
    await upgrade(database)
    await alembic(database, command.check)


async def test_migrations__concurrent_upgrades_wait_for_each_other(empty_url, empty):
    starters = [await starter(empty_url) for _ in range(4)]
    ended = await asyncio.gather(*(process.communicate(b"go\n") for process in starters))
    assert [process.returncode for process in starters] == [0] * len(starters), ended
    assert await tables(empty) == {"alembic_version", *TABLES}


async def starter(url):
    """Start a process that migrates as soon as it is told to."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", UPGRADE, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    assert await process.stdout.readline() == b"connected\n"
    return process
