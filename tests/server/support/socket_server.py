import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

import uvicorn

from sandbox_http.protocol import HttpProtocol
from sandbox_server.http.server import render_refusal
from sandbox_server.supervisor.listeners import listen


@asynccontextmanager
async def serving(app):
    """Serve the app on a socket, as it is in earnest; gives the port."""
    [listening] = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            lifespan="off",
            http=cast("Any", partial(HttpProtocol, render_refusal=render_refusal)),
        )
    )
    task = asyncio.create_task(server._serve([listening]))  # signals are the test session's own
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listening.close()


@asynccontextmanager
async def running(*tasks):
    """Run what works in the background for as long as the block lasts."""
    started = [asyncio.ensure_future(task) for task in tasks]
    yield
    for task in started:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def exchange(port, sent):
    """Send bytes as they are, and give the first answer: its status and all of its bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        body = await reader.readexactly(length)
    writer.close()
    return int(head.split()[1]), head + body
