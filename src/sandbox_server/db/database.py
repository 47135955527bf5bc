import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.migrating import upgrade
from sandbox_server.db.session import create_engine

OLDEST = 15


class UnusablePostgres(RuntimeError):
    """The database does not let us in, or its version lacks what the schema is made of."""


@asynccontextmanager
async def open_database(
    url: str | None, *, state_dir: Path, pool_size: int = 20
) -> AsyncIterator[AsyncEngine]:
    """Connect to the database at `url`, else to one of our own in `state_dir`, with the schema up to date.

    One of our own is stopped at the end, so only one server may have it.
    """
    if url is None:
        async with _embedded(state_dir) as own, _connected(own, pool_size=pool_size) as engine:
            yield engine
    else:
        async with _connected(url, pool_size=pool_size) as engine:
            yield engine


@asynccontextmanager
async def _embedded(state_dir: Path) -> AsyncIterator[str]:
    postgres = EmbeddedPostgres(state_dir / "postgres")
    url = await asyncio.to_thread(postgres.start)
    try:
        yield url
    finally:
        await asyncio.to_thread(postgres.stop)


@asynccontextmanager
async def _connected(url: str, *, pool_size: int) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url, pool_size=pool_size, max_overflow=0)
    try:
        await require_supported(engine)
        await upgrade(engine)
        yield engine
    finally:
        await engine.dispose()


async def require_supported(engine: AsyncEngine) -> None:
    """Refuse a database that cannot be used at all."""
    found = await find_version(engine)
    if found < OLDEST:
        raise UnusablePostgres(f"This is PostgreSQL {found}; {OLDEST} or newer is needed.")


async def find_version(engine: AsyncEngine) -> int:
    """Ask for the major version, as whoever asks anything for the first time."""
    try:
        async with engine.connect() as connection:
            number = await connection.scalar(text("SHOW server_version_num"))
    except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise UnusablePostgres(f"The database cannot be reached: {error}") from None
    return int(number) // 10_000
