import asyncio
import contextlib
import logging
import socket
from pathlib import Path

import httpx
import pytest

from sandbox_engine.ports.proxy import PortProxy
from tests.engine.proxy_server import (
    MIB,
    OK,
    Recorder,
    answering,
    application,
    client,
    exchange,
    flood,
    proxying,
    read_head,
    request,
    resident,
    serving,
)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_proxy_stream__events_pass_immediately():
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def app(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(5):
            writer.write(b"data: %d\n\n" % number)
            assert await received.get() == b"data: %d\n\n" % number

    async with (
        application(app) as port,
        proxying(port) as (served, _),
        client(served) as http,
        http.stream("GET", "/") as response,
    ):
        async for event in response.aiter_raw():
            received.put_nowait(event)


async def test_proxy_stream__both_directions_stream_at_once():
    async def echo(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not reader.at_eof():
            writer.write(await reader.readline())

    async with application(echo) as port, proxying(port) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await read_head(reader)
        for chunk in (b"3\r\nabc\r\n", b"4\r\ndefg\r\n", b"0\r\n\r\n"):
            writer.write(chunk)
            assert await reader.readexactly(len(chunk)) == chunk
        writer.close()


async def test_proxy_stream__large_download_uses_constant_memory():
    size = 256 * MIB

    async def app(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            writer.write(bytes(MIB))
            await writer.drain()

    async with application(app) as port, proxying(port) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await read_head(reader)
        before, left = resident(), size
        while left:
            left -= len(await reader.read(MIB))
            assert resident() - before < 16 * MIB
        writer.close()


async def test_proxy_stream__slow_client_applies_backpressure():
    sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def app(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        sent.set_result(await flood(writer))

    async with application(app) as port, proxying(port) as (served, _):
        _, writer = await asyncio.open_connection("127.0.0.1", served, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await asyncio.wait_for(sent, 20) < 32 * MIB
        writer.transport.abort()


@pytest.mark.parametrize("chunked", [True, False])
async def test_proxy_stream__large_upload_uses_constant_memory(chunked):
    size = 256 * MIB

    async def app(reader, writer):
        head = await read_head(reader)
        assert (b"Transfer-Encoding: chunked" in head) == chunked
        left = size
        while left:
            if chunked:
                length = int(await reader.readline(), 16)
                left -= len(await reader.readexactly(length))
                assert await reader.readexactly(2) == b"\r\n"
            else:
                left -= len(await reader.read(MIB))
        writer.write(OK)

    async def body():
        for _ in range(size // MIB):
            yield bytes(MIB)
            assert resident() - before < 32 * MIB

    headers = {} if chunked else {"Content-Length": str(size)}
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        before = resident()
        response = await http.post("/", content=body(), headers=headers)
    assert response.text == "ok"


async def test_proxy_stream__slow_application_applies_backpressure():
    reading = asyncio.Event()

    async def app(reader, writer):
        await read_head(reader)
        await reading.wait()
        while await reader.read(MIB):
            pass

    async with application(app) as port, proxying(port) as (served, _):
        _, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        assert await flood(writer) < 32 * MIB
        reading.set()
        await asyncio.wait_for(writer.drain(), 5)
        writer.close()


async def test_proxy_stream__aborted_upload_becomes_502():
    stuck, answered = asyncio.Event(), asyncio.Event()

    async def app(reader, writer):
        await read_head(reader)
        await stuck.wait()
        writer.write_eof()
        await answered.wait()

    async with application(app) as port, proxying(port) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        await flood(writer)
        stuck.set()
        assert b" 502 " in await asyncio.wait_for(read_head(reader), 5)
        answered.set()
        writer.transport.abort()


async def test_proxy_stream__early_response_reaches_the_client():
    app = answering(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    async def body():
        for _ in range(64):
            yield bytes(MIB)

    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        response = await http.post("/", content=body())
    assert (response.status_code, response.text) == (413, "big")


@pytest.mark.parametrize("answered", [True, False])
async def test_proxy_stream__client_disconnect_cuts_the_inner_connection(answered):
    asked, cut = asyncio.Event(), asyncio.Event()

    async def app(reader, writer):
        await read_head(reader)
        if answered:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n")
        asked.set()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        cut.set()

    async with application(app) as port, proxying(port) as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asked.wait()
        if answered:
            await read_head(reader)
        writer.transport.abort()
        await asyncio.wait_for(cut.wait(), 5)


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"], ids=["length", "chunked"]
)
async def test_proxy_stream__truncated_response_is_truncated_for_the_client(framing, caplog):
    app = answering(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n5\r\nhello\r\n")
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/")
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_proxy_stream__inner_connections_are_reused():
    app = Recorder()
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        for _ in range(20):
            await http.get("/")
    assert len(app.heads) == 20
    assert app.connections == 1


async def test_proxy_stream__closed_idle_connection_costs_no_request():
    closing = asyncio.Event()

    async def app(reader, writer):
        await read_head(reader)
        writer.write(OK)
        if not closing.is_set():
            closing.set()
            await reader.readexactly(1)  # the next request has begun when we hang up on it
            writer.transport.abort()

    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        answers = [(await http.get("/")).text for _ in range(2)]
    assert answers == ["ok", "ok"]


async def test_proxy_stream__non_idempotent_request_gets_a_new_connection():
    app = Recorder()
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        await http.get("/")
        await http.post("/")
    assert app.connections == 2


async def test_proxy_stream__five_hundred_requests_leak_no_descriptors():
    async with application(Recorder()) as port, proxying(port) as (served, proxy):
        before = descriptors()
        for number in range(500):
            line = b"%s / HTTP/1.1" % (b"GET" if number % 2 else b"POST")
            assert (await exchange(served, request(line, b"Host: a"))).endswith(b"ok")
        await proxy.close()
        async with asyncio.timeout(5):
            while descriptors() > before:  # noqa: ASYNC110 (the application closes its ends too)
                await asyncio.sleep(0)


async def test_proxy_stream__close_cuts_active_and_idle_connections():
    started = asyncio.Event()
    gone: asyncio.Queue[bytes] = asyncio.Queue()

    async def app(reader, writer):
        if b"GET /idle" in await read_head(reader):
            writer.write(OK)
        elif started.is_set():
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        started.set()
        gone.put_nowait(await reader.read())

    async with application(app) as port, proxying(port) as (served, proxy), client(served) as http:
        await http.get("/idle")
        started.clear()
        waiting = asyncio.create_task(http.post("/waiting"))
        await started.wait()
        async with http.stream("POST", "/begun") as begun:
            await proxy.close()
            with pytest.raises(httpx.RemoteProtocolError):
                await begun.aread()
        answer = await waiting
        for _ in range(3):
            await asyncio.wait_for(gone.get(), 5)
    assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found")


async def test_proxy_stream__dial_ending_after_close_is_discarded():
    dialling, allowed = asyncio.Event(), asyncio.Event()
    near, far = socket.socketpair()

    async def dial(_port):
        dialling.set()
        await allowed.wait()
        near.setblocking(False)
        return near

    proxy = PortProxy(dial, sandbox_id="sandbox1")

    async def app(scope, receive, send):
        await proxy(scope, receive, send, port=80)

    async with serving(app) as served, client(served) as http:
        asked = asyncio.create_task(http.get("/"))
        await dialling.wait()
        await proxy.close()
        allowed.set()
        assert "was not found" in (await asked).json()["message"]
    with far:
        assert far.recv(1) == b""
