import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger(__name__)

_PROBE_SECONDS = 10.0
_RECONNECT_SECONDS = 1.0

Heard = Callable[[str | None], None]


class Notifications:
    """Hears NOTIFY for the whole process, on one connection beside the pool.

    What is said while the connection is down is lost. So every listener is called when it is up,
    with None instead of a payload, to read anew whatever it follows.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._listeners: list[tuple[str, Heard]] = []

    def listen(self, channel: str, heard: Heard) -> None:
        """Have `heard` called with each payload; to be said before `run`."""
        self._listeners.append((channel, heard))

    async def run(self) -> None:
        """Listen until cancelled, again after each loss of the connection."""
        while True:
            try:
                async with self._connected() as connection:
                    await self._hear(connection)
            except (
                SQLAlchemyError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                OSError,
                TimeoutError,
            ) as error:
                log.warning("not hearing notifications error=%r", error)
            await asyncio.sleep(_RECONNECT_SECONDS)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            await connection.run_sync(lambda sync: sync.detach())  # leaves its place in the pool
            yield driver

    async def _hear(self, connection: asyncpg.Connection) -> None:
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        for channel, heard in self._listeners:
            await connection.add_listener(channel, _payload_to(heard))
        for _, heard in self._listeners:
            heard(None)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    await ended.wait()
            # A peer that is gone without a word is noticed by asking it.
            await connection.execute("SELECT 1", timeout=_PROBE_SECONDS)


def _payload_to(heard: Heard) -> Callable[[object, int, str, str], None]:
    def pass_on(_connection: object, _pid: int, _channel: str, payload: str) -> None:
        heard(payload)

    return pass_on
