import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.migrating import upgrade
from sandbox_server.db.session import create_engine

OLDEST = 15


class UnsupportedPostgres(RuntimeError):
    """The database's version lacks what the schema is made of."""


@asynccontextmanager
async def open_database(
    url: str | None, *, state_dir: Path, pool_size: int = 10
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
    engine = create_engine(url, pool_size=pool_size, max_overflow=pool_size)
    try:
        await _require_supported(engine)
        await upgrade(engine)
        yield engine
    finally:
        await engine.dispose()


async def _require_supported(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        number = await connection.scalar(text("SHOW server_version_num"))
    found = int(number) // 10_000
    if found < OLDEST:
        raise UnsupportedPostgres(f"This is PostgreSQL {found}; {OLDEST} or newer is needed.")
