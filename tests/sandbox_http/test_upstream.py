"""A server in a sandbox that answers as it likes."""

import asyncio

import pytest

from sandbox_http.messages import RequestHead
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost

REQUEST = RequestHead(
    data=b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    method="GET",
    is_chunked=False,
    has_body=False,
    upgrade=None,
)

MANY = 50_000


class Clock:
    """Counts the turns that others have."""

    def __init__(self):
        self.turns = 0

    async def __aenter__(self):
        self._counting = asyncio.create_task(self._count())
        return self

    async def __aexit__(self, *_):
        self._counting.cancel()

    async def _count(self):
        while True:
            await asyncio.sleep(0)
            self.turns += 1


@pytest.fixture
async def answered_by():
    """Ask a server that answers with these bytes, whatever it is asked."""
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    tasks: set[asyncio.Task[None] | None] = set()

    async def answer(reader, writer):
        tasks.add(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(await answers.get())
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    opened = []

    async def ask(content):
        await answers.put(content)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(Upstream, "127.0.0.1", port)
        opened.append(upstream)
        upstream.start(REQUEST)
        return upstream

    yield ask
    for each in opened:
        each.abort(UpstreamLost())
    await asyncio.gather(*(task for task in tasks if task), return_exceptions=True)
    server.close()
    await server.wait_closed()


async def read(upstream):
    content, last = b"", False
    while not last:
        body, last = await upstream.body()
        content += body
    return content


async def test_upstream__a_response_in_tiny_chunks_does_not_block_the_event_loop(answered_by):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    upstream = await answered_by(head + b"1\r\nx\r\n" * MANY + b"0\r\n\r\n")
    async with asyncio.timeout(30), Clock() as clock:
        assert await read(upstream) == b"x" * MANY
    assert clock.turns > MANY * 6 / 8192
    assert upstream.is_reusable


async def test_upstream__a_response_of_any_size_arrives_complete(answered_by):
    content = bytes(range(256)) * 8192
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content)
    upstream = await answered_by(head + content)
    async with asyncio.timeout(30):
        assert await read(upstream) == content
    assert upstream.is_reusable


async def test_upstream__endless_interim_responses_fail(answered_by):
    upstream = await answered_by(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * MANY)
    async with asyncio.timeout(30):
        with pytest.raises(UpstreamInvalid):
            await upstream.response()
