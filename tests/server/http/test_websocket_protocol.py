"""The HTTP server's WebSockets against malicious clients."""

import asyncio
import socket
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta

import pytest

from sandbox_server.http import websocket_protocol
from sandbox_server.http.server import HttpServer
from sandbox_server.supervisor.listeners import listen
from tests.engine.polling import until

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PIECE = b"x" * 2**16


EMPTY_PING = b"\x89\x80" + bytes(4)
SMALL_TEXT = b"\x81\x81" + bytes(4) + b"x"


class Turns:
    """Counts the messages and the turns of the event loop meanwhile."""

    def __init__(self):
        self.messages = self.turns = 0
        self.is_over = asyncio.Event()

    async def __call__(self, scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        counting = asyncio.create_task(self._count())
        while (message := await receive())["type"] == "websocket.receive":
            self.messages += 1
            if message.get("bytes") is not None:
                self.is_over.set()
        counting.cancel()

    async def _count(self):
        while True:
            await asyncio.sleep(0)
            self.turns += 1


class Flood:
    """Sends until the peer stops reading, then stays silent."""

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


async def test_websockets__a_client_that_does_not_read_is_disconnected(monkeypatch):
    monkeypatch.setattr(websocket_protocol, "_CLOSE_TIMEOUT", timedelta(milliseconds=50))
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


@pytest.mark.parametrize("frame", [EMPTY_PING, SMALL_TEXT], ids=["pings", "messages"])
async def test_websockets__a_flood_of_small_frames_does_not_block_others(monkeypatch, frame):
    monkeypatch.setattr(websocket_protocol, "_FRAMES_PER_S", 1e9)
    app = Turns()
    async with serving(app) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        reading = asyncio.create_task(reader.read())
        writer.write(frame * 10_000 + b"\x82\x80" + bytes(4))
        async with asyncio.timeout(30):
            await app.is_over.wait()
        assert app.messages in {1, 10_001}
        assert app.turns > 10_000 * len(frame) / 2048
        writer.close()
        await reading


async def test_websockets__frames_beyond_the_rate_are_not_read(monkeypatch):
    monkeypatch.setattr(websocket_protocol, "_FRAMES_PER_S", 0.001)
    async with serving(Turns()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        stalled = False
        for _ in range(1000):
            writer.write(EMPTY_PING * 10_000)
            try:
                async with asyncio.timeout(0.5):
                    await writer.drain()
            except TimeoutError:
                stalled = True
                break
        assert stalled
        writer.transport.abort()
