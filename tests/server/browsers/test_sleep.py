"""Sleeping browsers: paused without traffic, resumed by the next message on the same connection."""

import asyncio
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from tests.engine.polling import until
from tests.server.browsers.conftest import CDP_PORT
from tests.server.browsers.test_links import attached, links_of
from tests.server.support.full_server import WAIT, inside, new_sandbox
from tests.server.support.request_recorder import start_recorder

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

COMMAND = '{"id":1,"method":"Browser.getVersion"}'


@pytest_asyncio.fixture(loop_scope="module")
async def sleepy(outside):
    """Create a sandbox that sleeps after a second without traffic."""
    async with new_sandbox(outside) as sandbox_id, outside.api() as api:
        await start_recorder(await inside(outside, sandbox_id), CDP_PORT)
        await api.patch(f"/v1/sandboxes/{sandbox_id}", json={"idle_timeout_s": 1})
        yield sandbox_id


async def read(outside, sandbox_id):
    async with outside.api() as api:
        return (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()


async def wait_paused(outside, sandbox_id):
    async def is_paused():
        return (await read(outside, sandbox_id))["state"] == "paused"

    await until(is_paused)


async def test_sleep__an_idle_browser_is_paused_and_the_next_message_wakes_it(outside, sleepy):
    url = (await links_of(outside, sleepy))["cdp_url"]
    async with attached(outside, url) as socket, asyncio.timeout(2 * WAIT):
        await socket.recv()
        for _ in range(2):
            await wait_paused(outside, sleepy)
            await (await socket.ping())
            assert (await read(outside, sleepy))["state"] == "paused"
            await socket.send(COMMAND)
            assert await socket.recv() == COMMAND
            assert (await read(outside, sleepy))["state"] == "running"


async def test_sleep__all_connections_survive_and_any_of_them_wakes_it(outside, sleepy):
    url = (await links_of(outside, sleepy))["cdp_url"]
    async with attached(outside, url) as one, attached(outside, url) as two:
        for socket in (one, two):
            await socket.recv()
        await wait_paused(outside, sleepy)
        await asyncio.gather(one.send(COMMAND), two.send(COMMAND))
        async with asyncio.timeout(WAIT):
            assert [await one.recv(), await two.recv()] == [COMMAND, COMMAND]


async def test_sleep__a_command_without_its_response_keeps_the_browser_awake(outside, sleepy):
    url = (await links_of(outside, sleepy))["cdp_url"]
    async with attached(outside, url) as socket:
        await socket.recv()
        await socket.send('{"method":"Runtime.evaluate","id":1}')  # the echo is no response
        await socket.recv()
        began = (await read(outside, sleepy))["last_activity_at"]

        async def was_active_for_long():
            sandbox = await read(outside, sleepy)
            assert sandbox["state"] == "running"
            active = datetime.fromisoformat(sandbox["last_activity_at"])
            return active - datetime.fromisoformat(began) > timedelta(seconds=2)

        await until(was_active_for_long)


async def test_sleep__a_browser_that_may_not_be_resumed_says_so(outside, sleepy):
    url = (await links_of(outside, sleepy))["cdp_url"]
    async with attached(outside, url) as socket, outside.api() as api:
        await socket.recv()
        await api.patch(f"/v1/sandboxes/{sleepy}", json={"auto_resume": False})
        await wait_paused(outside, sleepy)
        await socket.send(COMMAND)
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(WAIT):
                await socket.recv()
        assert socket.close_code == 1011
        assert "paused" in (socket.close_reason or "")


async def test_sleep__the_end_of_a_paused_sandbox_ends_its_connections(outside, sleepy):
    url = (await links_of(outside, sleepy))["cdp_url"]
    async with attached(outside, url) as socket, outside.api() as api:
        await socket.recv()
        await wait_paused(outside, sleepy)
        await api.delete(f"/v1/sandboxes/{sleepy}")
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(WAIT):
                await socket.recv()
        assert socket.close_code == 1001
