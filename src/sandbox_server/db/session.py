import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    AsyncSessionTransaction,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from sandbox_server.db.database_url import place_of

_CONNECTS_WITHIN_S = 15  # per host of the URL

_SETTINGS = {
    "application_name": "sandbox-server",
    "jit": "off",  # queries are short: JIT compilation would take longer
    "random_page_cost": "1.1",  # rows are cached: random access costs the same
}

T = TypeVar("T")
Sessions = async_sessionmaker[AsyncSession]

_autocommitting: WeakKeyDictionary[Sessions, AsyncEngine] = WeakKeyDictionary()

OUTAGES = (SQLAlchemyError, OSError)
"""Exceptions of an unreachable database."""


def create_engine(
    url: str, *, pool_size: int = 10, max_overflow: int = 10, statement_cache: int = 500
) -> AsyncEngine:
    """Create a connection pool for a libpq URL.

    asyncpg parses the URL, so `sslmode`, `host=/socket/directory` and all other parameters mean the
    same as in psql. `statement_cache` is the number of prepared statements per connection.
    """
    place_of(url)  # rejects invalid URLs, which asyncpg would take for localhost
    named = parse_qs(urlsplit(url).query)
    settings = {name: value for name, value in _SETTINGS.items() if name not in named}

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(
            f"postgresql://{url.partition('://')[2]}",  # ignores the driver in the URL
            timeout=_CONNECTS_WITHIN_S,
            statement_cache_size=statement_cache,
            server_settings=settings,
        )

    engine = create_async_engine(
        f"postgresql+asyncpg://?prepared_statement_cache_size={statement_cache}",
        async_creator=connect,
        pool_size=pool_size,
        max_overflow=max_overflow,
        hide_parameters=True,  # errors are logged and stored with jobs
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


# Limit for a statement whose caller was cancelled, in case the database does not respond.
_FINISH_WITHIN_S = 5.0


class _Session(AsyncSession):
    """A session whose statements finish even if the caller is cancelled, as by a client that disconnects.

    An aborted statement costs its connection: SQLAlchemy has to close it, and reports an error if the cancellation is repeated, as
    anyio does until the task has ended.
    """

    _unfinished: asyncio.Task[Any] | None = None

    async def execute(self, *args: Any, **options: Any) -> Any:
        return await self._finish(super().execute(*args, **options))

    async def scalar(self, *args: Any, **options: Any) -> Any:
        return await self._finish(super().scalar(*args, **options))

    async def scalars(self, *args: Any, **options: Any) -> Any:
        return await self._finish(super().scalars(*args, **options))

    async def get(self, *args: Any, **options: Any) -> Any:
        return await self._finish(super().get(*args, **options))

    async def get_one(self, *args: Any, **options: Any) -> Any:
        return await self._finish(super().get_one(*args, **options))

    async def refresh(self, *args: Any, **options: Any) -> None:
        await self._finish(super().refresh(*args, **options))

    async def flush(self, *args: Any, **options: Any) -> None:
        await self._finish(super().flush(*args, **options))

    def begin(self) -> AsyncSessionTransaction:
        return _Transaction(self)

    async def close(self) -> None:
        await self.wait_for_statement()
        await super().close()

    async def wait_for_statement(self) -> None:
        """Wait for a statement whose caller was cancelled."""
        if self._unfinished is not None:
            await asyncio.wait([self._unfinished])

    async def _finish(self, statement: Coroutine[Any, Any, T]) -> T:
        task = self._unfinished = asyncio.create_task(statement)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(_FINISH_WITHIN_S, task.cancel)
            raise


class _Transaction(AsyncSessionTransaction):
    async def __aexit__(self, *failure: object) -> None:
        await cast("_Session", self.session).wait_for_statement()
        await super().__aexit__(*failure)


async def cancelled_once(work: Coroutine[Any, Any, T]) -> T:
    """Run database work for a caller in an anyio cancel scope, such as a streaming response.

    Such a scope repeats its cancellation, also while a statement finishes.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


def create_sessions(engine: AsyncEngine) -> Sessions:
    """Create the session factory; rows stay readable after commit."""
    return async_sessionmaker(engine, class_=_Session, expire_on_commit=False)


def without_transaction(sessions: Sessions) -> AsyncSession:
    """Create an autocommit session: one round trip per statement instead of three."""
    return sessions(bind=_without_transaction(sessions))


def _without_transaction(sessions: Sessions) -> AsyncEngine:
    # Cached: creating it took a third of a statement's time.
    made = _autocommitting.get(sessions)
    if made is None:
        engine: AsyncEngine = sessions.kw["bind"]
        made = engine.execution_options(isolation_level="AUTOCOMMIT")
        _autocommitting[sessions] = made
    return made


@dataclass(frozen=True)
class PoolUse:
    """Connections in use, and their maximum."""

    used: int
    limit: int


def pool_use(sessions: Sessions) -> PoolUse:
    engine: AsyncEngine = sessions.kw["bind"]
    pool = cast("QueuePool", engine.pool)
    return PoolUse(used=pool.checkedout(), limit=pool.size() + pool._max_overflow)  # noqa: SLF001 - not public


def _refuse_closed(
    connection: DBAPIConnection, _entry: ConnectionPoolEntry, _proxy: object
) -> None:
    # asyncpg detects closed connections; a ping on every checkout would cost a round trip.
    if connection.driver_connection.is_closed():
        raise DisconnectionError
