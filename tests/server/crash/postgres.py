"""A proxy between a server and PostgreSQL that knows when something is about to be committed."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.server.crash.walk import Lost, Walk

_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) (?:sandboxes|snapshots|jobs|events)\b")
_HEARTBEAT = re.compile(r"UPDATE jobs SET leased_until=")
_CLAIM = re.compile(r"ORDER BY jobs\.run_at.*SKIP LOCKED.*UPDATE jobs", re.DOTALL)
_PORT = 5432
_ENDED = (ConnectionError, asyncio.IncompleteReadError, Lost)


class PostgresProxy:
    """Passes on what comes to `url`, and has each commit take its place in the walk."""

    def __init__(self, database_url: str) -> None:
        self._parts = urlsplit(database_url)
        directory = parse_qs(self._parts.query)["host"][0]
        self._socket = f"{directory}/.s.PGSQL.{_PORT}"
        self.walk = Walk()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        account = self._parts.netloc.rpartition("@")[0]
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{account}@127.0.0.1:{port}{self._parts.path}?sslmode=disable"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            from_server, server = await asyncio.open_unix_connection(self._socket)
            try:
                await _Connection(self, client, server).relay(reader, from_server)
            finally:
                server.close()
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._connections.discard(task)
            client.close()


class _Connection:
    """One connection, whose client sends its next statement when it has read the last answer."""

    def __init__(
        self, proxy: PostgresProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._statements: dict[bytes, str] = {}
        self._bound = ""
        self._in_transaction = False
        self._written: list[str] = []
        self._is_held = False
        self._claims = False

    async def relay(
        self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader
    ) -> None:
        pumps = [
            asyncio.create_task(self._to_server(from_client)),
            asyncio.create_task(self._to_client(from_server)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for result in await asyncio.gather(*pumps, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, _ENDED):
                    raise result

    async def _to_server(self, reader: asyncio.StreamReader) -> None:
        self._server.write(await _body(reader))
        async for kind, message in _messages(reader):
            if step := self._step(kind, message):
                self._is_held = await self._proxy.walk.commit(step)
            self._server.write(message)
            await self._server.drain()

    async def _to_client(self, reader: asyncio.StreamReader) -> None:
        answer, has_rows = b"", False
        async for kind, message in _messages(reader):
            answer += message
            has_rows |= kind == b"D"
            if kind == b"Z":
                self._in_transaction = message[5:6] != b"I"
                await self._answered(has_rows=has_rows)
                has_rows = False
            elif self._is_held or self._claims:
                continue
            self._client.write(answer)
            answer = b""
            await self._client.drain()

    async def _answered(self, *, has_rows: bool) -> None:
        if self._claims and has_rows:
            # That it is a step is known only now: mostly there is nothing to claim.
            self._is_held = await self._proxy.walk.commit("claim")
        if self._is_held:
            await self._proxy.walk.answered()
        self._is_held = self._claims = False

    def _step(self, kind: bytes, message: bytes) -> str:
        """Say what is committed by this message, if anything is that we follow."""
        match kind:
            case b"P":
                name, text, _ = message[5:].split(b"\0", 2)
                self._statements[name] = text.decode()
            case b"B":
                _, name, _ = message[5:].split(b"\0", 2)
                self._bound = self._statements[name]
            case b"E":
                return self._carried_out(self._bound)
            case b"Q":
                said = message[5:-1].decode()
                if said.startswith(("COMMIT", "ROLLBACK")):
                    step, self._written = " + ".join(self._written), []
                    return step if said.startswith("COMMIT") else ""
                return self._carried_out(said)
        return ""

    def _carried_out(self, text: str) -> str:
        if not _WRITES.search(text) or _HEARTBEAT.search(text):
            return ""
        if _CLAIM.search(text):
            self._claims = True
            return ""
        written = ", ".join(dict.fromkeys(_WRITES.findall(text)))
        if self._in_transaction:
            self._written.append(written)
            return ""
        return written


async def _body(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size) - len(size))


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    with suppress(asyncio.IncompleteReadError):
        while True:
            kind = await reader.readexactly(1)
            yield kind, kind + await _body(reader)
