import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from weakref import WeakValueDictionary

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sandbox_server.db.session import OUTAGES, Sessions

_TAKE = text("SELECT pg_try_advisory_lock(:space, :number)")
_GIVE = text("SELECT pg_advisory_unlock(:space, :number)")
_SPACE = 1  # the lock space of these names
_FIRST_LOOK_S, _LAST_LOOK_S = 0.01, 0.2


class NotFree(Exception):
    """The lock was not released within the timeout."""


class Locks:
    """Named locks across all servers of a database (session-level advisory locks).

    All locks of a process share one connection outside the pool and end with it: waiting takes no connection from others, and a
    process that dies leaves no locks behind.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._engine: AsyncEngine = sessions.kw["bind"]
        self._here: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._connection: AsyncConnection | None = None
        self._asking = asyncio.Lock()

    @asynccontextmanager
    async def hold(self, name: str, *, wait: timedelta) -> AsyncIterator[None]:
        """Hold a lock during the block; raises NotFree on timeout."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(wait.total_seconds()) as patience:
                    await self._hold(_number(name), held)
            except TimeoutError:
                if patience.expired():
                    raise NotFree from None
                raise
            yield

    async def close(self) -> None:
        async with self._asking:
            await self._drop()

    async def _hold(self, number: int, held: AsyncExitStack) -> None:
        here = self._here.setdefault(number, asyncio.Lock())
        await held.enter_async_context(here)
        # Released even if its acquisition is unknown: statements run in order.
        held.push_async_callback(self._give, number)
        await self._take(number)

    async def _take(self, number: int) -> None:
        pause = _FIRST_LOOK_S
        while not await asyncio.shield(self._ask(_TAKE, number)):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_S)

    async def _give(self, number: int) -> None:
        with suppress(*OUTAGES):  # released with the connection
            await asyncio.shield(self._ask(_GIVE, number))

    async def _ask(self, statement: TextClause, number: int) -> bool:
        async with self._asking:
            if self._connection is None:
                self._connection = await self._connect()
            asked = {"space": _SPACE, "number": number}
            try:
                return bool(await self._connection.scalar(statement, asked))
            except OUTAGES:
                await self._drop()
                raise

    async def _connect(self) -> AsyncConnection:
        engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        connection = await engine.connect()
        await connection.run_sync(lambda sync: sync.detach())  # does not occupy a pool slot
        return connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*OUTAGES):
                await connection.close()


def _number(name: str) -> int:
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=4).digest()
    return int.from_bytes(digest, signed=True)
