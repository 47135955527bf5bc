import asyncio
import json
import os
import signal
import socket
import ssl
from datetime import timedelta

import pytest
import trustme
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve as serve_websocket

from sandbox_engine.http.server import listen, serve
from sandbox_engine.system.errors import CannotRun
from sandbox_http import protocol as http_protocol
from tests.engine.proxy_server import (
    MIB,
    exchange,
    proxying,
    read_head,
    resident,
    serving,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
CLOSING = GET + b"Connection: close\r\n\r\n"


async def hello(scope, receive, send):
    """Answer the body that was sent, or hello."""
    if scope["type"] != "http":
        raise NotImplementedError
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body or b"hello"})


class Streaming:
    """An application that answers without an end, until the client leaves."""

    def __init__(self):
        self.left: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            raise NotImplementedError
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.create_task(self._wait_leaving(receive))
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
            await asyncio.sleep(0)
        self.left.put_nowait(scope["path"])

    async def _wait_leaving(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(directory / "cert.pem")
    return {"tls_cert": directory / "cert.pem", "tls_key": directory / "key.pem"}


@pytest.fixture
def trusting(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def send_until_refused(reader, writer, start, *, size):
    """Send `size` more bytes after `start` in spite of any answer; return the answer."""
    writer.write(start)
    for _ in range(size // 65536):
        writer.write(b"a" * 65536)
        await writer.drain()
    head = await read_head(reader)
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


@pytest.mark.parametrize(
    "start",
    [
        GET + b"X: ",
        GET,
        b"GET /",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: ",
    ],
    ids=["value", "name", "target", "chunk extension", "trailer"],
)
async def test_http_server__oversized_head_is_rejected(start):
    async with serving(hello) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        before = resident()
        head, body = await send_until_refused(reader, writer, start, size=10 * MIB)
        assert resident() - before < 4 * MIB
        assert await reader.read() == b""
        writer.close()
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"Connection: close" in head
    refusal = json.loads(body)
    assert refusal["code"] == 431
    assert "65536 bytes" in refusal["message"]


async def test_http_server__oversized_head_is_rejected_over_tls(tls, trusting):
    async with serving(hello, **tls) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        before = resident()
        head, _ = await send_until_refused(reader, writer, GET + b"X: ", size=10 * MIB)
        assert resident() - before < 8 * MIB
        writer.transport.abort()
    assert head.startswith(b"HTTP/1.1 431 ")


async def test_http_server__head_limit_is_64_kib():
    def head(size):
        fill = b"X-Fill: %s\r\n" % (b"1" * 990)
        return GET + b"Connection: close\r\n" + fill * (size // len(fill)) + b"\r\n"

    async with serving(hello) as port:
        served = await exchange(port, head(63 * 1024))
        refused = await exchange(port, head(66 * 1024))
    assert served.startswith(b"HTTP/1.1 200 ")
    assert refused.startswith(b"HTTP/1.1 431 ")


async def test_http_server__body_does_not_count_towards_the_head():
    chunks = b"400\r\n" + b"b" * 1024 + b"\r\n"
    async with serving(hello) as port:
        answer = await exchange(
            port,
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunks * 1024
            + b"0\r\n\r\n",
        )
    assert answer.count(b"b") >= MIB


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"],
    ids=["a TLS hello", "no target", "CONNECT"],
)
async def test_http_server__invalid_http_is_rejected_as_json(garbage):
    async with serving(hello) as port:
        answer = await exchange(port, garbage)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == 400


async def test_http_server__rejection_never_mixes_with_a_response():
    app = Streaming()
    async with serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"more")
        writer.write(b"not http\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        assert await asyncio.wait_for(app.left.get(), 5) == "/"
        writer.close()


async def test_http_server__disconnect_behind_a_pipelined_request_is_noticed():
    app = Streaming()
    async with serving(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for path in (b"/first ", b"/second "):
            writer.write(GET.replace(b"/ ", path) + b"\r\n")
        writer.close()
        assert await asyncio.wait_for(app.left.get(), 5) == "/first"


async def test_http_server__endless_head_times_out(monkeypatch):
    monkeypatch.setattr(http_protocol, "_TIME_FOR_HEAD", timedelta(milliseconds=50))
    async with serving(hello) as port:
        for start in (b"", b"GET / HTT"):
            assert await asyncio.wait_for(exchange(port, start), 5) == b""


@pytest.mark.slow  # loads the machine
async def test_http_server__three_hundred_clients_are_served():
    async with serving(hello) as port:
        answers = await asyncio.gather(*(exchange(port, CLOSING) for _ in range(300)))
    assert all(answer.endswith(b"5\r\nhello\r\n0\r\n\r\n") for answer in answers)


async def test_http_server__server_header_is_absent():
    async with serving(hello) as port:
        answer = await exchange(port, CLOSING)
    assert b"server:" not in answer.lower()


async def test_http_server__https_speaks_http_1_1_only(tls, trusting):
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(hello, **tls) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.write(CLOSING)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_http_server__websocket_works_over_tls(tls, trusting):
    async def echo(websocket):
        async for message in websocket:
            await websocket.send(message)

    async with serve_websocket(echo, "127.0.0.1", 0, max_size=None) as server:
        app = server.sockets[0].getsockname()[1]
        async with (
            proxying(app, **tls) as (port, _),
            connect(
                f"wss://localhost:{port}/", ssl=trusting, max_size=None, compression=None
            ) as websocket,
        ):
            for message in ("hello", bytes(8 * MIB)):
                await websocket.send(message)
                assert await websocket.recv() == message


async def test_http_server__signal_ends_the_server_not_the_process():
    app, started, stopping = Streaming(), asyncio.Event(), asyncio.Event()
    listeners = listen("127.0.0.1", 0)

    async def stop():
        stopping.set()
        writer.transport.abort()

    running = asyncio.create_task(serve(app, listeners, on_started=started.set, on_stopping=stop))
    await started.wait()
    reader, writer = await asyncio.open_connection(*listeners[0].getsockname())
    writer.write(GET + b"\r\n")
    await reader.readuntil(b"more")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 10)
    assert stopping.is_set()


async def test_http_server__used_port_is_reported():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(CannotRun, match="is taken"),
    ):
        listen("127.0.0.1", taken.getsockname()[1])


def test_http_server__host_name_is_served_on_all_addresses():
    listeners = listen("localhost", 0)
    assert len({listener.getsockname()[1] for listener in listeners}) == 1
    assert "127.0.0.1" in {listener.getsockname()[0] for listener in listeners}
    for listener in listeners:
        listener.close()
