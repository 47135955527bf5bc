"""A TCP proxy to PostgreSQL that can lose responses and be closed."""

import asyncio
import re
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit

_CHUNK = 65536
_PORT = 5432
_PREPARED = re.compile(rb"P....(__asyncpg_\w+)\0([^\0]*)\0", re.DOTALL)
_BOUND = re.compile(rb"B....[^\0]*\0(__asyncpg_\w+)\0", re.DOTALL)
_READY = b"Z\0\0\0\x05I"


class LossyPostgres:
    """Forwards connections to `url` while it is open."""

    def __init__(self, database_url: str) -> None:
        self._parts = urlsplit(database_url)
        directory = parse_qs(self._parts.query)["host"][0]
        self._socket = f"{directory}/.s.PGSQL.{_PORT}"
        self._connections: set[asyncio.Task[None]] = set()
        self._losing: re.Pattern[bytes] | None = None
        self._is_open = True
        self.lost = asyncio.Event()

    @property
    def url(self) -> str:
        account = self._parts.netloc.rpartition("@")[0]
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{account}@127.0.0.1:{port}{self._parts.path}?sslmode=disable"

    def lose_answer_to(self, statement: str) -> None:
        """Execute the next statement like this, and close the connection instead of returning its result."""
        self._losing = re.compile(statement.encode())

    def close(self) -> None:
        """Close all connections and refuse new ones."""
        self._is_open = False
        for connection in self._connections:
            connection.cancel()

    def open(self) -> None:
        self._is_open = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.close()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self._is_open:
                await self._relay(reader, client)
        except (asyncio.CancelledError, ConnectionError):
            pass  # closed, or the test is over
        finally:
            self._connections.discard(task)
            client.close()

    async def _relay(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await asyncio.open_unix_connection(self._socket)
        prepared: dict[bytes, bytes] = {}
        loses = asyncio.Event()
        pumping = asyncio.create_task(self._answer(from_server, client, loses))
        try:
            while data := await reader.read(_CHUNK):
                if self._is_lost(data, prepared):
                    self._losing = None
                    loses.set()
                server.write(data)
                await server.drain()
        finally:
            pumping.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await pumping
            server.close()

    async def _answer(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, loses: asyncio.Event
    ) -> None:
        lost = b""
        while data := await reader.read(_CHUNK):
            if loses.is_set():
                lost += data
                if lost.endswith(_READY):
                    self.lost.set()
                    break
            else:
                client.write(data)
                await client.drain()
        client.close()

    def _is_lost(self, data: bytes, prepared: dict[bytes, bytes]) -> bool:
        """Tell whether the result of this statement is to be lost. Its text was seen when it was prepared."""
        prepared |= dict(_PREPARED.findall(data))
        if self._losing is None:
            return False
        return any(self._losing.search(prepared.get(name, b"")) for name in _BOUND.findall(data))
