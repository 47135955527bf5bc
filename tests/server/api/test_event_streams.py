"""Events as they happen, over sockets."""

import asyncio
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from tests.server.api.following import following
from tests.server.api.rows import add_event, add_sandbox, find_tenant
from tests.server.api.serving import serving

EVENTS = "/v1/events"


@asynccontextmanager
async def running(*tasks):
    """Run what works in the background for as long as the block lasts."""
    started = [asyncio.ensure_future(task) for task in tasks]
    yield
    for task in started:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def port(app, services, notifications):
    async with running(notifications.run(), services.streams.run()), serving(app) as port:
        yield port


@pytest.fixture
async def reader(port, make_key):
    """Call the server over a socket."""
    headers = {"X-API-Key": await make_key(scopes=["read"])}
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20
    ) as reader:
        yield reader


@pytest.fixture
async def tenant_id(reader, sessions):
    return await find_tenant(sessions)


@pytest.fixture
async def row(sessions, tenant_id):
    return await add_sandbox(sessions, tenant_id)


async def test_what_happens_is_told_as_it_does_after_all_that_has_happened(
    reader, sessions, tenant_id, row
):
    await add_event(sessions, tenant_id, row.id, "First.")
    async with following(reader, EVENTS) as stream:
        first = await anext(stream)
        assert (first.id, first.data["reason"]) == (1, "First.")
        for number in (2, 3):
            await add_event(sessions, tenant_id, row.id, f"Number {number}.")
            told = await anext(stream)
            assert (told.id, told.data["reason"]) == (number, f"Number {number}.")
    listed = (await reader.get(EVENTS)).json()["items"]
    assert [told.data for told in stream.told] == listed
