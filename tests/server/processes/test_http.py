"""The HTTP server against clients that mean it no good."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sandbox_server.processes import http_protocol
from sandbox_server.processes.http_protocol import MAX_HEAD
from sandbox_server.processes.http_server import HttpServer
from sandbox_server.processes.listening import listen


async def answer_headers(scope, receive, send):
    """Answer with the names of the request's headers, once all of it has arrived."""
    while (await receive()).get("more_body"):
        pass
    names = b",".join(name for name, _ in scope["headers"])
    headers = [(b"content-length", b"%d" % len(names))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": names})


@asynccontextmanager
async def serving():
    listeners, started = listen("127.0.0.1", 0), asyncio.Event()
    server = HttpServer(
        answer_headers,
        stop_timeout=timedelta(seconds=1),
        on_started=started.set,
        on_stop=lambda: None,
    )
    task = asyncio.create_task(server.serve(sockets=listeners))
    await started.wait()
    try:
        yield listeners[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@pytest.fixture
async def say():
    """Send bytes on a connection of their own; gives all that is answered until it ends."""
    async with serving() as port:

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


async def test_the_server_does_not_tell_what_it_is(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"server:" not in answer.lower().partition(b"\r\n\r\n")[0]


async def test_a_header_without_end_is_refused(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\nX: ", *[b"x" * 4096] * (MAX_HEAD // 4096 + 1))
    assert answer.startswith(b"HTTP/1.1 431 ") or b"ConnectionResetError" in answer


async def test_headers_without_number_are_refused(say):
    answer = await say(b"GET / HTTP/1.1\r\nHost: a\r\n", *[b"X-A: b\r\n" * 500] * 20)
    assert answer.startswith(b"HTTP/1.1 431 ") or b"ConnectionResetError" in answer


async def test_a_head_that_takes_too_long_ends_the_connection(say, monkeypatch):
    monkeypatch.setattr(http_protocol, "_TIME_FOR_HEAD", timedelta(milliseconds=50))
    assert await say(b"GET / HTTP/1.1\r\nHost: a\r\n") == b""
    assert await say() == b""


async def test_a_body_may_be_larger_and_take_longer_than_a_head(say, monkeypatch):
    monkeypatch.setattr(http_protocol, "_TIME_FOR_HEAD", timedelta(milliseconds=50))
    size = 4 * MAX_HEAD
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    assert (await say(head, b"x" * size)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_trailer_does_not_pass_for_a_header(say):
    chunked = (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = await say(chunked + b"1\r\nx\r\n0\r\nX-Api-Key: forged\r\n\r\n")
    assert answer.endswith(b"host,connection,transfer-encoding")
