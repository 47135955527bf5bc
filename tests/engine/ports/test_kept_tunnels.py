"""Tunnels that stay open while a sandbox is paused, and those that do not."""

from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from tests.engine.proxy_server import proxying

KEEP = {"X-Keep-While-Paused": "1"}


async def echo(websocket):
    assert "X-Keep-While-Paused" not in websocket.request.headers
    async for message in websocket:
        await websocket.send(message)


@asynccontextmanager
async def echoing(*, forwarded=True):
    """Serve an echo behind the proxy; yields its URL, and the proxy."""
    async with serve(echo, "127.0.0.1", 0) as server:
        application = server.sockets[0].getsockname()[1]
        async with proxying(application, forwarded=forwarded) as (port, proxy):
            yield f"ws://127.0.0.1:{port}", proxy


async def says(websocket, message):
    await websocket.send(message)
    return await websocket.recv() == message


async def test_tunnel__that_asks_for_it_survives_a_pause_and_others_end():
    async with (
        echoing() as (url, proxy),
        connect(url, additional_headers=KEEP) as kept,
        connect(url) as other,
    ):
        assert await says(kept, "before")
        assert await says(other, "before")
        await proxy.suspend()
        assert await says(kept, "after")
        with pytest.raises(ConnectionClosed):
            await says(other, "after")
        async with connect(url) as new:
            assert await says(new, "new")


async def test_tunnel__ends_with_the_sandbox_also_if_it_is_kept_while_paused():
    async with echoing() as (url, proxy), connect(url, additional_headers=KEEP) as kept:
        assert await says(kept, "before")
        await proxy.suspend()
        await proxy.close()
        with pytest.raises(ConnectionClosed):
            await says(kept, "after")


async def test_tunnel__only_a_proxy_in_front_can_keep_one_open():
    async with (
        echoing(forwarded=False) as (url, proxy),
        connect(url, additional_headers=KEEP) as kept,
    ):
        assert await says(kept, "before")
        await proxy.suspend()
        with pytest.raises(ConnectionClosed):
            await says(kept, "after")
