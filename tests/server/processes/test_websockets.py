"""The HTTP server's WebSockets against clients that mean it no good."""

import asyncio
import socket
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta

from sandbox_server.processes import websocket_protocol
from sandbox_server.processes.http_server import HttpServer
from sandbox_server.processes.listening import listen
from tests.engine.waiting import until

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PIECE = b"x" * 2**16


class Flood:
    """Sends until nothing more is taken, and then has nothing more to say."""

    def __init__(self):
        self.stalled = asyncio.Event()

    async def __call__(self, scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.2):
                    await send({"type": "websocket.send", "bytes": PIECE})
        self.stalled.set()


@asynccontextmanager
async def serving(app):
    listeners, started = listen("127.0.0.1", 0), asyncio.Event()
    server = HttpServer(
        app, stop_timeout=timedelta(seconds=1), on_started=started.set, on_stop=lambda: None
    )
    task = asyncio.create_task(server.serve(sockets=listeners))
    await started.wait()
    try:
        yield server, listeners[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def test_a_connection_whose_other_side_reads_nothing_ends(monkeypatch):
    monkeypatch.setattr(websocket_protocol, "_LAST_WORDS", timedelta(milliseconds=50))
    app = Flood()
    async with serving(app) as (server, port):
        client = socket.create_connection(("127.0.0.1", port))
        with closing(client):
            client.sendall(HANDSHAKE)
            async with asyncio.timeout(30):
                await app.stalled.wait()

            async def has_ended():
                return not server.server_state.connections

            await until(has_ended)
