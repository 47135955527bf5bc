import asyncio
import socket

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve as serve_websocket
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.engine.proxy_server import (
    MIB,
    application,
    exchange,
    flood,
    proxying,
    read_head,
    resident,
)

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"
ASKING = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"


class WebSocketApp:
    """A WebSocket application behind the proxy; `url` is the proxy's."""

    def __init__(self, handler, **options):
        self._server = serve_websocket(handler, "127.0.0.1", 0, **options)

    async def __aenter__(self):
        server = await self._server
        self._proxying = proxying(server.sockets[0].getsockname()[1])
        port, self.proxy = await self._proxying.__aenter__()
        self.url = f"ws://127.0.0.1:{port}/chat?room=1"
        return self

    async def __aexit__(self, *exc):
        await self._proxying.__aexit__(*exc)
        self._server.server.close()
        await self._server.server.wait_closed()


async def echo(websocket):
    async for message in websocket:
        await websocket.send(message)


async def test_proxy_upgrade__messages_keep_type_and_content():
    async with WebSocketApp(echo) as app, connect(app.url) as websocket:
        for message in ("text ü", "", b"\x00\xff", b"", "x" * MIB):
            await websocket.send(message)
            assert await websocket.recv() == message


async def test_proxy_upgrade__handshake_comes_from_the_application():
    async def tell(websocket):
        asked = websocket.request
        names = ("Host", "Origin", "Cookie", "Authorization")
        await websocket.send("|".join([asked.path, *(asked.headers[name] for name in names)]))

    def greet(_connection, _request, response):
        response.headers["Set-Cookie"] = "seen=1"

    async with WebSocketApp(
        tell, subprotocols=[Subprotocol("v2"), Subprotocol("v1")], process_response=greet
    ) as app:
        headers = {"Cookie": "a=1", "Authorization": "Bearer mine"}
        async with connect(
            app.url,
            origin=Origin("http://b.example"),
            additional_headers=headers,
            subprotocols=[Subprotocol("v1")],
        ) as websocket:
            told = await websocket.recv()
            greeting = websocket.response
    host = app.url.split("/")[2]
    assert told == f"/chat?room=1|{host}|http://b.example|a=1|Bearer mine"
    assert websocket.subprotocol == "v1"
    assert greeting is not None
    assert greeting.headers["Set-Cookie"] == "seen=1"


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "bye"), (4321, "because ü")])
async def test_proxy_upgrade__application_close_code_reaches_the_client(code, reason):
    async def close(websocket):
        await websocket.close(code, reason)

    async with WebSocketApp(close) as app, connect(app.url) as websocket:
        await websocket.wait_closed()
    assert (websocket.close_code, websocket.close_reason) == (code, reason)


async def test_proxy_upgrade__client_close_code_reaches_the_application():
    closed = asyncio.get_running_loop().create_future()

    async def wait(websocket):
        await websocket.wait_closed()
        closed.set_result((websocket.close_code, websocket.close_reason))

    async with WebSocketApp(wait) as app, connect(app.url) as websocket:
        await websocket.close(4999, "enough")
        assert await asyncio.wait_for(closed, 5) == (4999, "enough")


async def test_proxy_upgrade__application_answers_pings():
    async with WebSocketApp(echo) as app, connect(app.url) as websocket:
        await asyncio.wait_for(await websocket.ping(b"are you there"), 5)


async def test_proxy_upgrade__vanished_client_is_an_abnormal_close():
    closed = asyncio.get_running_loop().create_future()

    async def wait(websocket):
        await websocket.wait_closed()
        closed.set_result(websocket.close_code)

    async with WebSocketApp(wait) as app, connect(app.url) as websocket:
        websocket.transport.abort()
        assert await asyncio.wait_for(closed, 5) == 1006


async def test_proxy_upgrade__vanished_application_is_an_abnormal_close():
    async def vanish(websocket):
        websocket.transport.abort()

    async with WebSocketApp(vanish) as app, connect(app.url) as websocket:
        with pytest.raises(ConnectionClosedError):
            await websocket.recv()
    assert websocket.close_code == 1006


async def test_proxy_upgrade__rejection_reaches_the_client():
    def reject(connection, _request):
        return connection.respond(403, "members only")

    async with WebSocketApp(echo, process_request=reject) as app:
        with pytest.raises(InvalidStatus) as rejected:
            await connect(app.url)
    assert rejected.value.response.status_code == 403
    assert rejected.value.response.body == b"members only"


async def test_proxy_upgrade__closed_port_is_reported():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with proxying(free.getsockname()[1]) as (served, _):
            with pytest.raises(InvalidStatus) as rejected:
                await connect(f"ws://127.0.0.1:{served}/")
    assert rejected.value.response.status_code == 502
    assert b"port is not open" in rejected.value.response.body


async def test_proxy_upgrade__close_cuts_websockets():
    async with WebSocketApp(echo) as app, connect(app.url) as websocket:
        await websocket.send("x")
        await websocket.recv()
        await app.proxy.close()
        with pytest.raises(ConnectionClosedError):
            await websocket.recv()


async def test_proxy_upgrade__stalled_reader_applies_backpressure():
    sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def shout(reader, writer):
        await read_head(reader)
        writer.write(SWITCH)
        sent.set_result(await flood(writer))

    async with application(shout) as port, proxying(port) as (served, _):
        before = resident()
        reader, writer = await asyncio.open_connection("127.0.0.1", served, limit=1024)
        writer.write(ASKING)
        size = await asyncio.wait_for(sent, 20)
        assert size < 32 * MIB
        assert resident() - before < 16 * MIB
        await read_head(reader)
        assert len(await reader.read()) == size
        writer.close()


async def test_proxy_upgrade__message_of_64_mib_uses_constant_memory():
    size = 64 * MIB

    async def swallow(reader, writer):
        await read_head(reader)
        writer.write(SWITCH)
        left = size
        while left:
            left -= len(await reader.read(MIB))
        writer.write(b"all of it")
        await writer.drain()

    async with application(swallow) as port, proxying(port) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(ASKING)
        await read_head(reader)
        before = resident()
        for _ in range(size // MIB):
            writer.write(bytes(MIB))
            await writer.drain()
            assert resident() - before < 16 * MIB
        assert await reader.read() == b"all of it"
        writer.close()


async def test_proxy_upgrade__any_protocol_works_without_losing_bytes():
    async def shout(reader, writer):
        await read_head(reader)
        writer.write(SWITCH + b"hello")
        assert await reader.readexactly(5) == b"early"
        writer.write((await reader.readexactly(4)).upper())
        await writer.drain()

    async with application(shout) as port, proxying(port) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(ASKING + b"ear")
        writer.write(b"ly")
        assert await read_head(reader) == SWITCH
        assert await reader.readexactly(5) == b"hello"
        writer.write(b"last")
        assert await reader.read() == b"LAST"
        writer.close()


async def test_proxy_upgrade__http2_offer_is_declined():
    heads = []

    async def app(reader, writer):
        heads.append(await read_head(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with application(app) as port, proxying(port) as (served, _):
        answer = await exchange(
            served,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert heads == [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]


async def test_proxy_upgrade__upgrade_with_a_body_is_rejected():
    async with proxying(1) as (served, _):
        answer = await exchange(
            served,
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: shout\r\n"
            b"Content-Length: 28\r\n\r\nGET /admin HTTP/1.1\r\nX: y\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 501 ")
    assert answer.count(b"HTTP/1.1") == 1
