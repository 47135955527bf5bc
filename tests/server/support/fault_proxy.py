"""A proxy between an HTTP client and its server, in which things go wrong when a test says so."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

_CHUNK = 65536


class Exchange:
    """One request that has arrived, for a fault to do with as it likes."""

    def __init__(self, head: bytes, body: bytes, port: int, client: asyncio.StreamWriter) -> None:
        self.line = head.partition(b" HTTP/")[0].decode()
        self.head = head
        self._request = _closing(head) + body
        self._port = port
        self._client = client

    async def _upstream(self) -> asyncio.StreamReader:
        reader, self._server = await asyncio.open_connection("127.0.0.1", self._port)
        self._server.write(self._request)
        return reader

    def drop_parameter(self, name: str) -> None:
        """Take a parameter out of the query."""
        parameter = rb"(?<=[?&])%s=[^& ]*&?" % name.encode()
        self._request = re.sub(parameter, b"", self._request, count=1)

    async def relay(self) -> None:
        """Pass the request on, and the answer back as it comes."""
        reader = await self._upstream()
        with contextlib.closing(self._server):
            await self.answer(_open(await reader.readuntil(b"\r\n\r\n")))
            while chunk := await reader.read(_CHUNK):
                await self.answer(chunk)

    async def pass_on(self) -> bytes:
        """Pass the request on; gives the whole answer, which the client has not got yet."""
        reader = await self._upstream()
        with contextlib.closing(self._server):
            return _open(await reader.read())

    async def answer(self, data: bytes) -> None:
        self._client.write(data)
        await self._client.drain()

    def hang_up(self) -> None:
        self._client.close()


Fault = Callable[[Exchange], Awaitable[None]]


async def lose_answer(exchange: Exchange) -> None:
    """Have the request carried out and never tell."""
    await exchange.pass_on()
    exchange.hang_up()


async def cut(exchange: Exchange) -> None:
    """Have the request carried out and break off in the middle of the answer's body."""
    head, end, body = (await exchange.pass_on()).partition(b"\r\n\r\n")
    await exchange.answer(head + end + body[: len(body) // 2])
    exchange.hang_up()


async def hold(exchange: Exchange) -> None:
    """Say nothing, for as long as the test lasts."""
    await asyncio.Event().wait()


async def stall(exchange: Exchange) -> None:
    """Begin to answer, and say no more."""
    answer = await exchange.pass_on()
    await exchange.answer(answer[: len(answer) // 2])
    await asyncio.Event().wait()


async def answer_twice(exchange: Exchange) -> None:
    answer = await exchange.pass_on()
    await exchange.answer(answer + answer)


async def deliver_twice(exchange: Exchange) -> None:
    """Have the request carried out, and once more; the client gets the second answer."""
    await exchange.pass_on()
    await exchange.answer(await exchange.pass_on())


def answer_with(status: int, body: str = "", **headers: str) -> Fault:
    """Answer in the server's place, which hears nothing of it."""

    async def fault(exchange: Exchange) -> None:
        lines = [f"HTTP/1.1 {status} Fault", f"Content-Length: {len(body.encode())}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await exchange.answer("\r\n".join([*lines, "", body]).encode())

    return fault


def without_parameter(name: str) -> Fault:
    """Pass the request on without a parameter of its query, as if the server did not know it."""

    async def fault(exchange: Exchange) -> None:
        exchange.drop_parameter(name)
        await exchange.relay()

    return fault


class Held:
    """Holds a request until it is let go: before it is carried out, or with its answer."""

    def __init__(self, *, carried_out: bool) -> None:
        self._carried_out = carried_out
        self._reached = asyncio.Event()
        self._let_go = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        answer = await exchange.pass_on() if self._carried_out else None
        self._reached.set()
        await self._let_go.wait()
        await exchange.answer(await exchange.pass_on() if answer is None else answer)

    async def wait_reached(self) -> None:
        async with asyncio.timeout(60):
            await self._reached.wait()

    def let_go(self) -> None:
        self._let_go.set()


@dataclass
class _Rule:
    fault: Fault
    on: str
    left: int


@dataclass
class FaultyProxy:
    """Passes on what comes to `url`, except what a rule of the test's is for."""

    target: int
    seen: list[str] = field(default_factory=list)
    """The requests so far, as `POST /path`."""

    def __post_init__(self) -> None:
        self._rules: list[_Rule] = []
        self._connections: set[asyncio.Task[None]] = set()
        # Bound all the time and never listening, so that nobody else gets the port meanwhile.
        self._claim = _bound(0)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        port: int = self._claim.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, request: str, fault: Fault, *, times: int = 1) -> None:
        """Let the fault happen to the next `times` requests that begin like this."""
        self._rules.append(_Rule(fault, request, times))

    async def has_seen(self, request: str, *, times: int) -> bool:
        return sum(line.startswith(request) for line in self.seen) >= times

    async def refuse(self) -> None:
        """Stop listening and drop all connections, as a server that is down does."""
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=_bound(self.port))

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        self._claim.close()

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async for head, body in _requests(reader):
                exchange = Exchange(head, body, self.target, client)
                self.seen.append(exchange.line)
                await self._fault_for(exchange.line)(exchange)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            self._connections.discard(task)
            client.close()

    def _fault_for(self, line: str) -> Fault:
        for rule in self._rules:
            if rule.left and line.startswith(rule.on):
                rule.left -= 1
                return rule.fault
        return Exchange.relay


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
            yield head, b"".join([chunk async for chunk in _chunks(reader)])
        else:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            yield head, await reader.readexactly(int(length[1]) if length else 0)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    size = -1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line, 16)
        yield line + await reader.readexactly(size + len(b"\r\n"))


def _closing(head: bytes) -> bytes:
    """Ask the server to end its answer by closing, so that nobody here has to count."""
    return b"\r\n".join([*_without_connection(head), b"Connection: close", b"", b""])


def _open(answer: bytes) -> bytes:
    """Let the client believe that its own connection stays, as it does."""
    head, end, body = answer.partition(b"\r\n\r\n")
    return b"\r\n".join(_without_connection(head)) + end + body


def _without_connection(head: bytes) -> Iterator[bytes]:
    for line in head.removesuffix(b"\r\n\r\n").split(b"\r\n"):
        if not line.lower().startswith(b"connection:"):
            yield line
