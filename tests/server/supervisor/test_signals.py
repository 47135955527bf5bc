"""A stop lets requests finish, within a bound; a second signal does not."""

import asyncio
import os
import signal

import httpx
import pytest

from tests.engine.polling import until
from tests.server.support.server_process import STOP_TIMEOUT_S


@pytest.fixture
async def ask(started):
    """Ask for a sandbox that nothing can provide, and wait; the request has arrived when this returns."""
    tasks = []

    async def ask(*, wait):
        async with started.client() as admin:
            asking = asyncio.create_task(create(started, wait=wait))
            tasks.append(asking)

            async def has_arrived():
                return (await admin.get("/v1/sandboxes")).json()["items"]

            await until(has_arrived)
        return asking

    yield ask
    await asyncio.gather(*tasks, return_exceptions=True)


async def create(server, *, wait):
    async with server.client() as admin:
        return await admin.post("/v1/sandboxes", params={"wait": wait}, json={})


async def test_stop__a_running_request_is_answered(started, ask):
    asking = await ask(wait=3)
    os.kill(started.pid, signal.SIGTERM)
    assert (await asking).status_code == 202
    assert await asyncio.to_thread(started.wait) == 0


@pytest.mark.slow  # one more start
async def test_stop__new_connections_are_refused(started, ask):
    await ask(wait=3)
    os.kill(started.pid, signal.SIGTERM)
    await until(lambda: refuses(started))
    assert await asyncio.to_thread(started.wait) == 0


@pytest.mark.slow  # one more start
async def test_stop__a_second_signal_ends_it_at_once(started, ask):
    asking = await ask(wait=4 * STOP_TIMEOUT_S)
    os.kill(started.pid, signal.SIGTERM)
    await until(lambda: refuses(started))
    os.kill(started.pid, signal.SIGTERM)
    assert await asyncio.to_thread(started.wait) == 1
    with pytest.raises(httpx.HTTPError):
        await asking
    started.start()


@pytest.mark.slow  # waits until the patience of a stop is over
async def test_stop__a_slow_request_does_not_prevent_it(started, ask):
    assert started.stop() == 0
    started.start("--stop-timeout-s", "1")
    asking = await ask(wait=4 * STOP_TIMEOUT_S)
    assert await asyncio.to_thread(started.stop) == 0
    done, _ = await asyncio.wait([asking], timeout=STOP_TIMEOUT_S)
    assert done == {asking}


async def refuses(server):
    async with server.client() as admin:
        try:
            await admin.get("/healthz")
        except httpx.HTTPError:
            return True
    return False
