"""Databases cloned from a migrated one, on one server of each version per test session."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest

from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.migrating import upgrade
from sandbox_server.db.session import create_engine
from tests.server.support.scratch_directory import scratch_directory

BUNDLED = "bundled"
SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
TEMPLATE = "migrated"
# Nothing of a test session has to survive the machine.
SETTINGS = {"fsync": "off", "max_connections": "200"}

_if_there = pytest.mark.skipif(not SYSTEM_15.exists(), reason=f"no {SYSTEM_15} here")

# For modules whose tests are to hold with the oldest version that we support too, which `make proofs` asks.
EVERY_POSTGRES = pytest.mark.parametrize(
    "postgres_version", [BUNDLED, pytest.param("15", marks=[_if_there, pytest.mark.slow])]
)
# For those that each run of the tests asks it.
ALWAYS_EVERY_POSTGRES = pytest.mark.parametrize(
    "postgres_version", [BUNDLED, pytest.param("15", marks=_if_there)]
)


class Servers:
    """Starts each version when a test first wants it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[str, str] = {}

    def url(self, version: str) -> str:
        if version not in self._urls:
            programs = None if version == BUNDLED else SYSTEM_15
            directory = self._stack.enter_context(scratch_directory()) / "postgres"
            url = EmbeddedPostgres(directory, programs=programs, settings=SETTINGS).start()
            asyncio.run(_make_template(url))
            self._urls[version] = url
        return self._urls[version]


@contextmanager
def running_servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


def database_url(server: str, name: str) -> str:
    return server.replace("/postgres?", f"/{name}?")


async def _make_template(server: str) -> None:
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
