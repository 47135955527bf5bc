import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Protocol

from sandbox_engine.network.dns.messages import (
    NOT_IMPLEMENTED,
    REFUSED,
    SERVER_FAILURE,
    Malformed,
    Query,
    is_failure,
)

_PORT = 53
_TRIES = 3
_TRY_SECONDS = 1.5  # three attempts fit in the five seconds after which a resolver retries
_IDLE_SECONDS = 10.0
_PENDING_PER_SANDBOX = 64
_QUERIES_PER_CONNECTION = 32
_LENGTH_BYTES = 2

Ask = Callable[[str, Query], Awaitable[bytes]]


class QueryPolicy(Protocol):
    """Decides which names sandboxes may resolve, and sees the answers."""

    def may_resolve(self, sandbox: str, name: str) -> bool: ...

    async def note_answer(self, sandbox: str, name: str, answer: bytes) -> None: ...


class Busy(Exception):
    """The sandbox has too many queries in progress."""


class Resolvers:
    """The host's resolvers."""

    def __init__(self, configuration: Path) -> None:
        self._configuration = configuration
        self._changed_at = 0
        self._servers: list[str] = []

    def current(self) -> list[str]:
        """List their addresses; follows changes of the host's configuration."""
        try:
            changed_at = self._configuration.stat().st_mtime_ns
            if changed_at != self._changed_at:
                self._servers = _nameservers(self._configuration.read_text(errors="replace"))
                self._changed_at = changed_at
        except FileNotFoundError:
            self._servers, self._changed_at = [], 0
        return [*self._servers] or ["127.0.0.1"]

    def demote(self, server: str) -> None:
        """Move a resolver to the end of the list."""
        if server in self._servers:
            self._servers.remove(server)
            self._servers.append(server)


class Forwarder:
    """Forwards sandboxes' DNS queries to the host's resolvers."""

    def __init__(self, resolvers: Resolvers, gatekeeper: QueryPolicy) -> None:
        self._resolvers = resolvers
        self._gatekeeper = gatekeeper
        self._pending: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str) -> tuple[int, int]:
        """Listen on a UDP port and a TCP port of an address; returns both."""
        loop = asyncio.get_running_loop()
        self._datagrams, self._listener = await loop.create_datagram_endpoint(
            lambda: _Listener(self._receive), local_addr=(address, 0)
        )
        self._streams = await asyncio.start_server(
            lambda reader, writer: self._spawn(self._serve(reader, writer)), address, 0
        )
        sockets = (self._datagrams.get_extra_info("socket"), *self._streams.sockets)
        udp_port, tcp_port = (each.getsockname()[1] for each in sockets)
        return udp_port, tcp_port

    async def close(self) -> None:
        """Stop answering."""
        self._datagrams.close()
        await self._listener.closed
        self._streams.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def resolve(self, sandbox: str, query: Query, ask: Ask) -> bytes:
        """Answer a query by the first of the host's resolvers that can."""
        if not self._gatekeeper.may_resolve(sandbox, query.name):
            return query.failure(REFUSED)  # no answer would delay programs for seconds
        if not query.is_lookup:
            return query.failure(NOT_IMPLEMENTED)
        answer = await self._answer(query, ask)
        await self._gatekeeper.note_answer(sandbox, query.name, answer)
        return answer

    async def _answer(self, query: Query, ask: Ask) -> bytes:
        answer = query.failure(SERVER_FAILURE)
        unable = set()
        for server in islice(cycle(self._resolvers.current()), _TRIES):
            if server in unable:
                continue
            try:
                async with asyncio.timeout(_TRY_SECONDS):
                    answer = query.reply(await ask(server, query.with_id(secrets.randbits(16))))
            except (OSError, EOFError):
                self._resolvers.demote(server)
                continue
            if not is_failure(answer):
                break
            unable.add(server)
        return answer

    def _receive(self, message: bytes, sandbox: tuple[str, int]) -> None:
        self._spawn(self._reply(message, sandbox))

    async def _reply(self, message: bytes, sandbox: tuple[str, int]) -> None:
        address, _ = sandbox
        with suppress(Busy, Malformed), self._turn(address):
            answer = await self.resolve(address, Query.parse(message), _ask_by_datagram)
            self._datagrams.sendto(answer, sandbox)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sandbox, _ = writer.get_extra_info("peername") or ("", 0)  # it may be closed again
        try:
            with suppress(Busy, Malformed, OSError, EOFError), self._turn(sandbox):
                for _ in range(_QUERIES_PER_CONNECTION):
                    async with asyncio.timeout(_IDLE_SECONDS):
                        query = Query.parse(await _read(reader))
                    answer = await self.resolve(sandbox, query, _ask_by_stream)
                    async with asyncio.timeout(_IDLE_SECONDS):
                        await _write(writer, answer)
        finally:
            writer.close()

    @contextmanager
    def _turn(self, sandbox: str) -> Iterator[None]:
        if self._pending[sandbox] >= _PENDING_PER_SANDBOX:
            raise Busy(sandbox)
        self._pending[sandbox] += 1
        try:
            yield
        finally:
            self._pending[sandbox] -= 1
            if not self._pending[sandbox]:
                del self._pending[sandbox]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Listener(asyncio.DatagramProtocol):
    """The UDP socket for sandboxes."""

    def __init__(self, hear: Callable[[bytes, tuple[str, int]], None]) -> None:
        self._receive = hear
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self._receive(data, addr)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set_result(None)


class _Exchange(asyncio.DatagramProtocol):
    """One query to one resolver, from its own port."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, _addr: tuple[str | Any, int]) -> None:
        if self._query.is_answered_by(data) and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


async def _ask_by_datagram(server: str, query: Query) -> bytes:
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_datagram_endpoint(
        lambda: _Exchange(query), remote_addr=(server, _PORT)
    )
    try:
        transport.sendto(query.message)
        return await exchange.answer
    finally:
        transport.close()


async def _ask_by_stream(server: str, query: Query) -> bytes:
    reader, writer = await asyncio.open_connection(server, _PORT)
    try:
        await _write(writer, query.message)
        while not query.is_answered_by(answer := await _read(reader)):
            pass
        return answer
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    return await reader.readexactly(length)


async def _write(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    await writer.drain()


def _nameservers(configuration: str) -> list[str]:
    lines = (line.split() for line in configuration.splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
