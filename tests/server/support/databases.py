"""Databases cloned from a migrated one, on one server of each version per test run."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql

from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine
from tests.run_services import Run

BUNDLED = "bundled"
SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
TEMPLATE = "migrated"
# Nothing of a test run has to survive the machine; all of its workers connect.
SETTINGS = {"fsync": "off", "max_connections": "600"}
_MANY_ROWS = 1000

_if_there = pytest.mark.skipif(not SYSTEM_15.exists(), reason=f"no {SYSTEM_15} here")

# For modules whose tests are to hold with the oldest version that we support too, which `make proofs` asks.
EVERY_POSTGRES = pytest.mark.parametrize(
    "postgres_version", [BUNDLED, pytest.param("15", marks=[_if_there, pytest.mark.slow])]
)
# For those that each run of the tests asks it.
ALWAYS_EVERY_POSTGRES = pytest.mark.parametrize(
    "postgres_version", [BUNDLED, pytest.param("15", marks=_if_there)]
)


class PostgresServers:
    """Starts each version when a test of the run first wants it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def url(self, version: str) -> str:
        return self._run.service(f"postgres-{version}")["url"]


@dataclass
class _PooledDatabase:
    """A database of a pool, with a connection that empties it and the schema that it was cloned with."""

    name: str
    connection: psycopg.Connection[Any]
    schema: tuple[Any, ...]


class DatabasePool:
    """Migrated databases that the tests of one worker use one after the other.

    To clone a database and to drop it takes 30 ms of a processor, to empty it 3 ms.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._idle: list[_PooledDatabase] = []

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Give a migrated, empty database for as long as the block lasts."""
        database = self._idle.pop() if self._idle else self._clone()
        try:
            yield database_url(self._server, database.name)
        finally:
            if _is_emptied(database):
                self._idle.append(database)
            else:
                self._drop(database)

    def close(self) -> None:
        while self._idle:
            self._drop(self._idle.pop())

    def _clone(self) -> _PooledDatabase:
        name = f"test_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        connection = psycopg.connect(database_url(self._server, name), autocommit=True)
        return _PooledDatabase(name, connection, _schema_of(connection))

    def _drop(self, database: _PooledDatabase) -> None:
        database.connection.close()
        self._execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement.encode())


def _is_emptied(database: _PooledDatabase) -> bool:
    """Remove what a test has left; false if the database is not as it was cloned then."""
    connection = database.connection
    try:
        _end_other_connections(connection)
        return _schema_of(connection) == database.schema and _remove_rows(connection)
    except psycopg.OperationalError:  # a test has cut off all connections, or dropped the database
        return False


def _end_other_connections(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def _schema_of(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """Describe the schema and its statistics so that every change of them shows."""
    catalogs = ("pg_attribute", "pg_class", "pg_constraint", "pg_proc", "pg_trigger")
    counts = ", ".join(
        f"(SELECT (count(*), max(xmin::text::bigint))::text FROM {name})" for name in catalogs
    )
    # Plans must not depend on the rows of an earlier test.
    analyzed = "(SELECT count(*) FROM pg_statistic)"
    revision = "(SELECT string_agg(version_num, ',') FROM alembic_version)"
    found = connection.execute(f"SELECT {counts}, {analyzed}, {revision}").fetchone()
    assert found is not None
    return tuple(found)


def _remove_rows(connection: psycopg.Connection[Any]) -> bool:
    """Delete all rows; false if there are many, of which dead ones would be left."""
    tables = _list_tables(connection)
    checks = sql.SQL(", ").join(
        sql.SQL("EXISTS(SELECT FROM {})").format(sql.Identifier(table)) for table in tables
    )
    found = connection.execute(sql.SQL("SELECT {}").format(checks)).fetchone()
    assert found is not None
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")  # no foreign keys
        removed = [
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table))).rowcount
            for table, has_rows in zip(tables, found, strict=True)
            if has_rows
        ]
    return sum(removed) < _MANY_ROWS


def _list_tables(connection: psycopg.Connection[Any]) -> list[str]:
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'"
    )
    return [row[0] for row in found]


def database_url(server: str, name: str) -> str:
    return server.replace("/postgres?", f"/{name}?")


async def make_template(server: str) -> None:
    await _execute(server, f"CREATE DATABASE {TEMPLATE}")
    engine = create_engine(database_url(server, TEMPLATE))
    await upgrade(engine)
    await engine.dispose()


@asynccontextmanager
async def new_database(server: str, *, template: str = TEMPLATE) -> AsyncIterator[str]:
    """Make a database for as long as the block lasts; `template0` gives an empty one."""
    name = f"test_{secrets.token_hex(6)}"
    await _execute(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    try:
        yield database_url(server, name)
    finally:
        await drop_database(server, name)


async def drop_database(server: str, name: str) -> None:
    await _execute(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def _execute(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
