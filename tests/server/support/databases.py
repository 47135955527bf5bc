"""Databases cloned from a migrated one, on one server of each version per test run."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine
from tests.run_services import Run

BUNDLED = "bundled"
SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
TEMPLATE = "migrated"
# Nothing of a test run has to survive the machine; all of its workers connect.
SETTINGS = {"fsync": "off", "max_connections": "600"}

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
