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
    """Receives NOTIFY for the whole process, on one connection outside the pool.

    Notifications are lost while the connection is down. After each connect every listener is called
    with None instead of a payload, to read the current state.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._listeners: list[tuple[str, Heard]] = []

    def listen(self, channel: str, heard: Heard) -> None:
        """Call `heard` with each payload; subscribe before `run`."""
        self._listeners.append((channel, heard))

    async def run(self) -> None:
        """Listen until cancelled; reconnect after losses."""
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
                log.warning("notifications_disconnected error=%r", error)
            await asyncio.sleep(_RECONNECT_SECONDS)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            await connection.run_sync(lambda sync: sync.detach())  # does not occupy a pool slot
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
            # A query detects a peer that vanished.
            await connection.execute("SELECT 1", timeout=_PROBE_SECONDS)


def _payload_to(heard: Heard) -> Callable[[object, int, str, str], None]:
    def pass_on(_connection: object, _pid: int, _channel: str, payload: str) -> None:
        heard(payload)

    return pass_on
