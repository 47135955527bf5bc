"""Followers that do not read, and the limit of concurrent streams."""

import asyncio
import re
import socket
from contextlib import suppress
from datetime import timedelta

import httpx
import pytest

from sandbox_server.log.hub import StreamHub
from sandbox_server.metrics.instruments import FOLLOWERS
from sandbox_server.settings import Settings
from tests.engine.polling import until
from tests.server.http.test_problems import assert_problem
from tests.server.support.event_reader import following
from tests.server.support.rows import add_event, add_sandbox, find_tenant

EVENTS = "/v1/events"
LARGE = "x" * 200_000
# More than all buffers on the way to a client have room for.
COUNT = 60
AT_ONCE = 3
SOON = timedelta(milliseconds=200)
# Longer than a busy machine keeps one waiting that does read.
STALLED_AFTER = timedelta(seconds=5)


@pytest.fixture
def settings():
    return Settings(max_streams_per_tenant=AT_ONCE, max_requests_per_tenant=1)


@pytest.fixture
def streams(sessions, notifications):
    return StreamHub(sessions, notifications, check_interval=SOON, stalled_after=STALLED_AFTER)


@pytest.fixture
async def key(make_key):
    return await make_key()


@pytest.fixture
async def reader(port, key):
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"X-API-Key": key}, timeout=20
    ) as reader:
        yield reader


@pytest.fixture
async def append_events(reader, sessions):
    """Append so many large events."""
    tenant_id = await find_tenant(sessions)
    row = await add_sandbox(sessions, tenant_id)

    async def append_events(count):
        for _ in range(count):
            await add_event(sessions, tenant_id, row.id, LARGE)

    return append_events


async def ask_and_not_read(port, key):
    """Request a stream over a connection with a small buffer; returns the socket."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", port))
    asked = (
        f"GET {EVENTS} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nX-API-Key: {key}\r\n\r\n"
    )
    await loop.sock_sendall(connection, asked.encode())
    return connection


async def read_until_reset(connection):
    loop = asyncio.get_running_loop()
    received = b""
    with suppress(ConnectionResetError):
        while part := await loop.sock_recv(connection, 2**20):
            received += part
    return received


@pytest.mark.slow  # fills a socket for seconds
async def test_slow_follower__is_disconnected_and_resumes_where_it_was(
    reader, port, key, append_events
):
    connection = await ask_and_not_read(port, key)
    async with asyncio.timeout(60), following(reader, EVENTS) as stream:
        await until(lambda: followed_by(2))
        writing = asyncio.create_task(append_events(COUNT))
        assert [(await anext(stream)).id for _ in range(COUNT)] == list(range(1, COUNT + 1))
        await writing
        await until(lambda: followed_by(1))
        received = await read_until_reset(connection)
        await append_events(1)
        assert (await anext(stream)).id == COUNT + 1
    connection.close()
    ids = [int(found) for found in re.findall(rb"(?m)^id: (\d+)\ndata: [^\n]*\n\n", received)]
    assert ids == list(range(1, len(ids) + 1))
    assert len(ids) < COUNT
    async with following(reader, EVENTS, after=ids[-1] if ids else 0) as stream:
        told = [(await anext(stream)).id for _ in range(COUNT + 1 - len(ids))]
    assert [*ids, *told] == list(range(1, COUNT + 2))


async def followed_by(count):
    [told] = FOLLOWERS.collect()
    return told.samples[0].value == count


async def test_stream_limit__applies_per_tenant_and_leaves_room_for_requests(
    reader, port, make_key
):
    neighbour = {"X-API-Key": await make_key(tenant="neighbour")}
    async with following(reader, EVENTS), following(reader, EVENTS), following(reader, EVENTS):
        refused = await reader.get(EVENTS, headers={"Accept": "text/event-stream"})
        assert_problem(refused, status=429, code="too-many-streams")
        assert refused.headers["retry-after"] == "5"
        assert (await reader.get(EVENTS)).status_code == 200
        async with (
            httpx.AsyncClient(base_url=reader.base_url, headers=neighbour, timeout=60) as other,
            following(other, EVENTS),
        ):
            pass
    async with following(reader, EVENTS):
        pass
