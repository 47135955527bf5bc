"""The floor: a Starlette app that sends the same bytes to as many followers and stores nothing."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_PACE_SECONDS = 0.07  # of our feeds, for as many followers


class Broadcast:
    """Sends gathered events to all followers at a fixed interval."""

    def __init__(self, *, per_second: int) -> None:
        self._per_second = per_second
        self._block = b""
        self._news = asyncio.Event()

    async def run(self) -> None:
        began, number = monotonic(), count(1)
        written = 0
        while True:
            await asyncio.sleep(_PACE_SECONDS)
            due = int((monotonic() - began) * self._per_second)
            self._block = b"".join(
                _event(next(number), began + n / self._per_second) for n in range(written, due)
            )
            written = due
            news, self._news = self._news, asyncio.Event()
            news.set()

    async def follow(self) -> AsyncIterator[bytes]:
        yield b": open\n\n"
        while True:
            await self._news.wait()
            yield self._block


def _event(number: int, at: float) -> bytes:
    told = {
        "seq": number,
        "type": "sandbox.stopping",
        "at": "2026-01-01T00:00:00.000000Z",
        "cause": "expiry",
        "actor": {"kind": "server", "id": None},
        "reason": f"{at:.6f}",
        "data": {},
        "sandbox_id": "s" * 20,
    }
    return b"id: %d\ndata: %b\n\n" % (number, json.dumps(told, separators=(",", ":")).encode())


def main(per_second: int) -> None:
    @asynccontextmanager
    async def broadcasting(app: Starlette) -> AsyncIterator[None]:
        app.state.broadcast = Broadcast(per_second=per_second)
        task = asyncio.create_task(app.state.broadcast.run())
        yield
        task.cancel()

    async def follow(request: Request) -> StreamingResponse:
        broadcast: Broadcast = request.app.state.broadcast
        return StreamingResponse(broadcast.follow(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/", follow)], lifespan=broadcasting)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    server.run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
