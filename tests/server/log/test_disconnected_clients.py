"""Clients that disconnect during a stream: no error is logged, and no database connection is lost."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import event
from websockets.asyncio.client import connect

from sandbox_server.db.session import pool_use
from tests.engine.polling import until

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

TIMES = 25
LINES = "while sleep 0.005; do echo line; done"
EVENTS = {"Accept": "text/event-stream"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(outside):
    """Create a sandbox with a command that writes continuously; returns its path."""
    async with outside.api() as api:
        made = await api.post("/v1/sandboxes", json={"template": "base"})
        path = f"/v1/sandboxes/{made.json()['id']}"
        yield path
        await api.delete(path)


@pytest.fixture
def discarded_connections(outside):
    """Record connections that the pool discards."""
    discarded_connections = []
    pool = outside.components.sessions.kw["bind"].sync_engine.pool

    def note(_connection, _record, error=None):
        discarded_connections.append(error)

    names = ("invalidate", "soft_invalidate")
    for name in names:
        event.listen(pool, name, note)
    yield discarded_connections
    for name in names:
        event.remove(pool, name, note)


@pytest.fixture
async def clean_disconnect(outside, discarded_connections, caplog):
    """Check at the end that no error was logged and all connections are back in the pool."""
    caplog.set_level(logging.INFO)

    @asynccontextmanager
    async def clean_disconnect():
        yield

        async def is_idle():
            return pool_use(outside.components.sessions).used == 0

        await until(is_idle)
        assert discarded_connections == []
        faults = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert [each.getMessage() for each in faults] == []

    return clean_disconnect


@asynccontextmanager
async def writing(api, sandbox, kind="commands"):
    """Start a command or a terminal that writes without end."""
    body = {"cmd": LINES} | ({"background": True} if kind == "commands" else {})
    made = await api.post(f"{sandbox}/{kind}", json=body)
    assert made.status_code == httpx.codes.CREATED, made.text
    path = f"{sandbox}/{kind}/{made.json()['id']}"
    try:
        yield path
    finally:
        if kind == "commands":
            await api.post(f"{path}/signal", json={"signal": "SIGKILL"})
        else:
            await api.delete(path)


async def read_some(api, method, path, **request):
    """Follow until some lines have arrived, and disconnect."""
    async with asyncio.timeout(30), api.stream(method, path, **request, headers=EVENTS) as answer:
        assert answer.status_code == httpx.codes.OK
        told = 0
        async for line in answer.aiter_lines():
            told += line.startswith("data:")
            if told == 3:
                return


async def test_disconnect__ends_the_stream_of_a_started_command(outside, sandbox, clean_disconnect):
    async with clean_disconnect(), outside.api() as api:
        for _ in range(TIMES):
            await read_some(
                api, "POST", f"{sandbox}/commands", json={"cmd": f"timeout 3 sh -c '{LINES}'"}
            )


@pytest.mark.parametrize("what", ["output", "logs"])
async def test_disconnect__ends_a_followed_stream(outside, sandbox, clean_disconnect, what):
    async with clean_disconnect(), outside.api() as api, writing(api, sandbox) as command:
        path = f"{command}/output" if what == "output" else f"{sandbox}/logs"
        for _ in range(TIMES):
            await read_some(api, "GET", path)
        await asyncio.gather(*(read_some(api, "GET", path) for _ in range(TIMES)))


async def test_disconnect__ends_a_terminal_connection(outside, sandbox, clean_disconnect):
    headers = {"X-API-Key": outside.key}
    async with (
        clean_disconnect(),
        outside.api() as api,
        writing(api, sandbox, "terminals") as terminal,
    ):
        url = f"ws://127.0.0.1:{outside.port}{terminal}"
        for _ in range(TIMES):
            socket = await connect(url, additional_headers=headers, compression=None)
            async with asyncio.timeout(30):
                for _ in range(3):
                    await socket.recv()
                await socket.send(json.dumps({"type": "resize", "cols": 80, "rows": 24}))
                await socket.send(b"x")
            socket.transport.abort()


async def test_disconnect__ends_a_wait_for_a_command(outside, sandbox, clean_disconnect):
    body = b'{"cmd": "until [ -e /tmp/go ]; do sleep 0.2; done"}'
    head = (
        f"POST {sandbox}/commands?wait=60 HTTP/1.1\r\nHost: {outside.host}\r\n"
        f"X-API-Key: {outside.key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    async with clean_disconnect(), outside.api() as api:

        async def count_running():
            listed = await api.get(f"{sandbox}/commands?limit=100&state=running")
            return len(listed.json()["items"])

        before = await count_running()
        writers = []
        for _ in range(TIMES):
            _, writer = await asyncio.open_connection("127.0.0.1", outside.port)
            writer.write(head.encode() + body)
            writers.append(writer)

        async def are_all_waited_for():
            return await count_running() >= before + TIMES

        async def have_all_ended():
            return await count_running() <= before

        await until(are_all_waited_for, timeout=60)
        await api.post(f"{sandbox}/commands?wait=0", json={"cmd": "touch /tmp/go"})
        for writer in writers:
            writer.transport.abort()
        await until(have_all_ended, timeout=60)
