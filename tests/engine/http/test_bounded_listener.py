import asyncio
import socket
from contextlib import asynccontextmanager

from sandbox_engine.http.bounded_listener import BoundedListener

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def hello(scope, receive, send):
    headers = [(b"connection", b"close"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def listening(app=hello):
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    bounded = BoundedListener(app, listener)
    try:
        yield bounded, port
    finally:
        bounded.close()
        await bounded.cut()


async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    return answer


async def test_bounded_listener__connections_above_the_limit_wait_for_others_to_end():
    async with listening() as (_, port):
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
        waiting = asyncio.create_task(ask(port))
        _, pending = await asyncio.wait([waiting], timeout=0.5)
        assert pending
        idle.pop().close()
        assert (await waiting).endswith(b"hello")
        for connection in idle:
            connection.close()


async def test_bounded_listener__requests_are_answered_at_a_limited_rate():
    """After 64 requests at once, 50 a second: a lower bound that a slow machine keeps too."""
    loop = asyncio.get_running_loop()
    async with listening() as (_, port):
        before = loop.time()
        for _ in range(100):
            assert (await ask(port)).endswith(b"hello")
        assert loop.time() - before > (100 - 64 - 1) / 50


async def test_bounded_listener__a_cut_ends_connections_and_not_the_listener():
    async with listening() as (bounded, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await ask(port)).endswith(b"hello")
        await bounded.cut()
        assert await _end(reader) == b""
        writer.close()
        assert (await ask(port)).endswith(b"hello")


async def test_bounded_listener__pipelined_requests_after_the_first_are_dropped():
    async with listening() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST * 100)
        assert (await _end(reader)).count(b"hello") <= 1
        writer.close()


async def _end(reader):
    """Read to the end, which may be a reset."""
    read = b""
    try:
        while part := await reader.read(4096):
            read += part
    except ConnectionError:
        pass
    return read
