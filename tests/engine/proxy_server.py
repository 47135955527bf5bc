import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_engine.http.server import listen, serve
from sandbox_engine.ports.proxy import PortProxy

MIB = 1 << 20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(
    app: ASGIApp,
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    on_stopping: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[int]:
    """Run the engine's server for an ASGI application and yield its port."""
    started = asyncio.get_running_loop().create_future()
    listeners = listen("127.0.0.1", 0)
    server = asyncio.create_task(
        serve(
            app,
            listeners,
            tls_cert=tls_cert,
            tls_key=tls_key,
            on_started=lambda: started.set_result(listeners[0].getsockname()[1]),
            on_stopping=on_stopping or _nothing_to_stop,
        )
    )
    await asyncio.wait([server, started], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield started.result()
    finally:
        server.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server


@asynccontextmanager
async def proxying(
    port: int,
    *,
    host: str | None = None,
    forwarded: bool = False,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> AsyncIterator[tuple[int, PortProxy]]:
    """Serve what listens on `port` through a PortProxy and yield where, and the proxy."""
    proxy = PortProxy(dial, sandbox_id="sandbox1")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError
        await proxy(scope, receive, send, port=port, host=host, forwarded=forwarded)

    async with serving(app, tls_cert=tls_cert, tls_key=tls_key, on_stopping=proxy.close) as served:
        yield served, proxy


@asynccontextmanager
async def application(
    handler: Handler, *, listener: socket.socket | None = None
) -> AsyncIterator[int]:
    """Serve raw connections by a handler and yield the port."""
    running: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        running.add(task)
        try:
            await asyncio.wait([task])
        finally:
            writer.close()

    listener = listener or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=listener, limit=1 << 20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        for outcome in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


class Recorder:
    """Keeps the request heads that reach an application, and counts their connections."""

    def __init__(self, answer: bytes = OK) -> None:
        self.heads: list[bytes] = []
        self.connections = 0
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while not reader.at_eof():
            self.heads.append(await read_head(reader))
            writer.write(self._answer)


def answering(answer: bytes) -> Handler:
    """Make an application that answers with these bytes and hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(answer)
        await writer.drain()

    return handle


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def flood(writer: asyncio.StreamWriter) -> int:
    """Write until nobody has taken any for a second; return how much was written."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            writer.write(bytes(MIB))
            sent += MIB
            await asyncio.wait_for(writer.drain(), 1)
    return sent


def request(*lines: bytes, body: bytes = b"") -> bytes:
    """Compose a request after which the server hangs up."""
    return b"\r\n".join([*lines, b"Connection: close", b"", body])


async def exchange(port: int, asked: bytes) -> bytes:
    """Send bytes and return all that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asked)
    answer = await reader.read()
    writer.close()
    return answer


def client(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20)


def resident() -> int:
    """Return the bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def dial(port: int) -> socket.socket:
    connected = socket.socket()
    connected.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
    except OSError:
        connected.close()
        raise
    return connected


async def _nothing_to_stop() -> None:
    pass
