import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from sandbox_server.db.database_url import (
    MALFORMED,
    VARIABLE,
    UnusablePostgres,
    place_of,
    refuse,
    server_error,
)
from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine

OLDEST = 15


@asynccontextmanager
async def open_database(
    url: str | None, *, state_dir: Path, pool_size: int = 20
) -> AsyncIterator[AsyncEngine]:
    """Connect to the database at `url`, or to an embedded one in `state_dir`, and upgrade the schema.

    An embedded database is stopped at the end, so only one server may use it.
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
        await require_supported(engine, url)
        await _upgrade(engine, url)
        yield engine
    finally:
        await engine.dispose()


async def _upgrade(engine: AsyncEngine, url: str) -> None:
    try:
        await upgrade(engine)
    except DBAPIError as error:
        reason = server_error(error)
        if isinstance(reason, asyncpg.InsufficientPrivilegeError):
            raise UnusablePostgres(
                f"The schema of the database at {place_of(url)} cannot be upgraded: {reason}. "
                f"Make the user of {VARIABLE} the owner, or grant the missing privileges."
            ) from None
        if isinstance(reason, asyncpg.ReadOnlySQLTransactionError):
            raise UnusablePostgres(
                f"The database at {place_of(url)} is read-only. Set {VARIABLE} to the primary."
            ) from None
        raise


async def require_supported(engine: AsyncEngine, url: str) -> None:
    """Reject an unusable database."""
    found = await find_version(engine, url)
    if found < OLDEST:
        raise UnusablePostgres(f"PostgreSQL {found} is too old. Upgrade it to {OLDEST} or newer.")


async def find_version(engine: AsyncEngine, url: str) -> int:
    """Return the major version; raises if the database is unreachable."""
    try:
        async with engine.connect() as connection:
            number = await connection.scalar(text("SHOW server_version_num"))
    except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        refuse(error, url)
    except ValueError:  # asyncpg's error quotes the URL with its password
        raise UnusablePostgres(MALFORMED) from None
    return int(number) // 10_000
