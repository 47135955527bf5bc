"""The HTTP server against malicious clients."""

import asyncio
import hashlib
import re
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sandbox_http import protocol as http_protocol
from sandbox_http.protocol import MAX_HEAD, MAX_HEADERS
from sandbox_server.http.server import HttpServer
from sandbox_server.supervisor.listeners import listen


async def answer_headers(scope, receive, send):
    """Answer with the request's header names and its body's checksum after reading the whole body."""
    body, more = hashlib.sha256(), True
    while more:
        message = await receive()
        body.update(message.get("body", b""))
        more = message.get("more_body", False)
    names = b",".join([*(name for name, _ in scope["headers"]), body.hexdigest().encode()])
    headers = [(b"content-length", b"%d" % len(names))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": names})


@asynccontextmanager
async def serving(app=answer_headers):
    listeners, started = listen("127.0.0.1", 0), asyncio.Event()
    server = HttpServer(
        app,
        stop_timeout=timedelta(seconds=1),
        on_started=started.set,
        on_stop=lambda: None,
    )
    task = asyncio.create_task(server.serve(sockets=listeners))
    await started.wait()
    try:
        yield server, listeners[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@pytest.fixture
async def say():
    """Send bytes on a new connection; returns the whole response."""
    async with serving() as (_, port):

        async def say(*parts):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                async with asyncio.timeout(60):
                    return await reader.read()
            except ConnectionError as error:
                return repr(error).encode()
            finally:
                writer.close()

        yield say


async def test_http_server__does_not_send_a_server_header(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"server:" not in answer.lower().partition(b"\r\n\r\n")[0]


async def test_http_server__an_endless_header_is_rejected(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\nX: ", *[b"x" * 4096] * (MAX_HEAD // 4096 + 1))
    assert answer.startswith(b"HTTP/1.1 431 ") or b"ConnectionResetError" in answer


async def test_http_server__an_endless_number_of_headers_is_rejected(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\n", *[b"X-A: b\r\n" * 500] * 20)
    assert answer.startswith(b"HTTP/1.1 431 ") or b"ConnectionResetError" in answer


async def test_http_server__a_slow_request_head_ends_the_connection(say, monkeypatch):
    monkeypatch.setattr(http_protocol, "_TIME_FOR_HEAD", timedelta(milliseconds=50))
    assert await say(b"GET / HTTP/1.1\r\nHost: a\r\n") == b""
    assert await say() == b""


async def test_http_server__a_body_may_be_larger_and_slower_than_a_head(say, monkeypatch):
    monkeypatch.setattr(http_protocol, "_TIME_FOR_HEAD", timedelta(milliseconds=50))
    size = 4 * MAX_HEAD
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    assert (await say(head, b"x" * size)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_http_server__a_trailer_is_not_treated_as_a_header(say):
    chunked = (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = await say(chunked + b"1\r\nx\r\n0\r\nX-Api-Key: forged\r\n\r\n")
    assert b"\r\n\r\nhost,connection,transfer-encoding," in answer


async def test_http_server__pipelined_requests_are_answered_in_order(say):
    requests = b"".join(b"GET / HTTP/1.1\r\nHost: a\r\nX-%d: b\r\n\r\n" % n for n in range(1000))
    answers = await say(requests + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert re.findall(rb"x-(\d+)", answers) == [b"%d" % n for n in range(1000)]


async def test_http_server__a_flood_of_small_chunks_does_not_block_others():
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"1\r\nx\r\n"
    async with serving() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + chunk * 50_000 + b"0\r\n\r\n")
        reading = asyncio.create_task(reader.read())
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await reading).startswith(b"HTTP/1.1 200 OK\r\n")
        assert turns > 50_000 * len(chunk) / 8192
        writer.close()


async def test_http_server__too_large_trailers_end_the_connection(say):
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    assert b"200 OK" not in await say(head, b"x:\r\n" * MAX_HEAD, b"\r\n")


async def test_http_server__a_head_with_too_many_headers_is_rejected_even_in_one_packet(say):
    head = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x:\r\n" * MAX_HEADERS + b"\r\n"
    assert (await say(head)).startswith(b"HTTP/1.1 431 ")


async def test_http_server__waiting_pipelined_requests_are_not_parsed_ahead():
    asked, answer = asyncio.Event(), asyncio.Event()

    async def answer_later(scope, receive, send):
        asked.set()
        await answer.wait()
        await answer_headers(scope, receive, send)

    async with serving(answer_later) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5000)
        async with asyncio.timeout(30):
            await asked.wait()
        [connection] = server.server_state.connections
        assert len(connection.pipeline) < 200
        writer.transport.abort()
        answer.set()


async def test_http_server__more_headers_than_the_limit_are_rejected(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x:\r\n" * 10_000 + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ") or b"ConnectionResetError" in answer


async def test_http_server__input_in_parts_of_any_size_is_parsed_correctly(say):
    body = bytes(range(256)) * 4096
    chunked = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part)
        for start in range(0, len(body), 777)
        if (part := body[start : start + 777])
    )
    head = b"POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answers = await say(head + chunked + b"0\r\n\r\n" + last)
    assert hashlib.sha256(body).hexdigest().encode() in answers
