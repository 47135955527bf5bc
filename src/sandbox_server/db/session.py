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

from sandbox_server.db.address import place_of

_CONNECTS_WITHIN_S = 15  # each of the hosts that a URL names

_SETTINGS = {
    "application_name": "sandbox-server",
    "jit": "off",  # our queries are short: compiling one would take longer than running it
    "random_page_cost": "1.1",  # the rows are in memory: reading them by an index is no dearer
}

T = TypeVar("T")
Sessions = async_sessionmaker[AsyncSession]

_autocommitting: WeakKeyDictionary[Sessions, AsyncEngine] = WeakKeyDictionary()

OUTAGES = (SQLAlchemyError, OSError)
"""What is raised where the database does not answer."""


def create_engine(
    url: str, *, pool_size: int = 10, max_overflow: int = 10, statement_cache: int = 500
) -> AsyncEngine:
    """Make a pool of connections to the PostgreSQL at a libpq URL.

    asyncpg reads the URL itself, so `sslmode`, `host=/socket/directory` and all else mean what
    they mean to psql. `statement_cache` is how many prepared statements a connection keeps.
    """
    place_of(url)  # refuses what is no such URL, of which asyncpg would make localhost
    named = parse_qs(urlsplit(url).query)
    settings = {name: value for name, value in _SETTINGS.items() if name not in named}

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(
            f"postgresql://{url.partition('://')[2]}",  # whatever driver it names
            timeout=_CONNECTS_WITHIN_S,
            statement_cache_size=statement_cache,
            server_settings=settings,
        )

    engine = create_async_engine(
        f"postgresql+asyncpg://?prepared_statement_cache_size={statement_cache}",
        async_creator=connect,
        pool_size=pool_size,
        max_overflow=max_overflow,
        hide_parameters=True,  # errors are logged and kept with jobs
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


# How long a statement goes on whose caller was cancelled. A database that does not answer may not keep the connection.
_FINISH_WITHIN_S = 5.0


class _Session(AsyncSession):
    """A session whose statements finish although their caller is cancelled, as by a client that hangs up.

    A statement that is broken off takes its connection with it: SQLAlchemy has to close that, and reports an error where
    the cancellation is repeated, as anyio does until a task has ended.
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
        await self.settle()
        await super().close()

    async def settle(self) -> None:
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
        await cast("_Session", self.session).settle()
        await super().__aexit__(*failure)


async def cancelled_once(work: Coroutine[Any, Any, T]) -> T:
    """Run database work for a caller in a scope of anyio, such as a streamed answer.

    Such a scope cancels what waits in it again and again, also while a statement finishes.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


def create_sessions(engine: AsyncEngine) -> Sessions:
    """Make sessions whose rows stay readable after the commit."""
    return async_sessionmaker(engine, class_=_Session, expire_on_commit=False)


def without_transaction(sessions: Sessions) -> AsyncSession:
    """Make a session whose statements each commit by themselves, in one round trip instead of three."""
    return sessions(bind=_without_transaction(sessions))


def _without_transaction(sessions: Sessions) -> AsyncEngine:
    # Made once: that took a third as long as a statement does.
    made = _autocommitting.get(sessions)
    if made is None:
        engine: AsyncEngine = sessions.kw["bind"]
        made = engine.execution_options(isolation_level="AUTOCOMMIT")
        _autocommitting[sessions] = made
    return made


@dataclass(frozen=True)
class PoolUse:
    """How many connections are at work, of how many that may be opened."""

    used: int
    limit: int


def pool_use(sessions: Sessions) -> PoolUse:
    engine: AsyncEngine = sessions.kw["bind"]
    pool = cast("QueuePool", engine.pool)
    return PoolUse(used=pool.checkedout(), limit=pool.size() + pool._max_overflow)  # noqa: SLF001 - it tells nobody


def _refuse_closed(
    connection: DBAPIConnection, _entry: ConnectionPoolEntry, _proxy: object
) -> None:
    # asyncpg knows of a connection that the server closed; a ping would ask on every checkout.
    if connection.driver_connection.is_closed():
        raise DisconnectionError
