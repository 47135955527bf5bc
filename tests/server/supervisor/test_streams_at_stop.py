import asyncio

import pytest

from tests.server.support.event_reader import following
from tests.server.support.server_process import server_process

EVENTS = "/v1/events"


@pytest.fixture
def started(database_url):
    """Start a server whose provider is nowhere, and which would wait for ten minutes when it is stopped."""
    variables = {
        "DATABASE_URL": database_url,
        "E2B_API_KEY": "e2b_0",
        "E2B_API_URL": "http://127.0.0.1:9",
    }
    with server_process("--stop-timeout-s", "600", variables=variables) as server:
        server.start()
        yield server


async def create(admin):
    created = await admin.post("/v1/sandboxes", params={"wait": 0}, json={})
    assert created.status_code == 202, created.text
    return created.json()["id"]


async def is_told(stream, sandbox_id):
    async for told in stream:
        if told.data["sandbox_id"] == sandbox_id:
            return True
    return False


async def test_stop__ends_streams_at_once_and_they_resume_after_the_next_start(started):
    async with started.client() as admin, asyncio.timeout(60):
        async with following(admin, EVENTS) as stream:
            first = await create(admin)
            assert await is_told(stream, first)
            stopping = asyncio.create_task(asyncio.to_thread(started.stop))
            await stream.rest()
            assert await stopping == 0
        await asyncio.to_thread(started.start)
        second = await create(admin)
        last = stream.told[-1].id
        async with following(admin, EVENTS, after=last) as stream:
            assert await is_told(stream, second)
            assert stream.told[0].id == last + 1
