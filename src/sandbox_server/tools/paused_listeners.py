import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from starlette.types import Message, Send

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import OUTAGES
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.state import State, Target
from sandbox_server.proxy.client import Client
from sandbox_server.sandboxes.service import SandboxController

HEARTBEAT = timedelta(seconds=15)

_START = {
    "type": "http.response.start",
    "status": HTTPStatus.OK,
    "headers": [(b"content-type", b"text/event-stream")],
}
_END = {"type": "http.response.body", "body": b""}


class StreamRejected(Exception):
    """The stream was started while the sandbox was paused, but the tool server does not respond with a stream."""


class PausedListeners:
    """Keeps the streams of clients open that listen to a paused sandbox, without resuming it.

    The clients see a stream without messages.
    """

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller
        self._stopping = asyncio.Event()

    def end_waits(self) -> None:
        """End all waits, because the server stops."""
        self._stopping.set()

    async def until_running(self, client: Client, caller: Caller, sandbox_id: str) -> Client | None:
        """Wait until the sandbox runs; returns the client with its started stream, or None if that has ended."""
        with self._controller.watch(sandbox_id) as follower:
            row = await self._controller.get(caller, sandbox_id)
            if not _is_paused(row):
                return client
            await client.send(_START)
            try:
                while _is_paused(row):
                    await client.send({**_END, "body": b": paused\n\n", "more_body": True})
                    if not await self._wait_connected(client, follower.wait(longest=HEARTBEAT)):
                        await end(client)
                        return None
                    row = await self._controller.get(caller, sandbox_id)
            except (SandboxError, *OUTAGES):
                await end(client)
                return None
        return Client(client.scope, client.receive, _without_start(client.send))

    async def _wait_connected(self, client: Client, waiting: Coroutine[Any, Any, object]) -> bool:
        """Wait; returns False if the client disconnected or the server stops."""
        async with asyncio.TaskGroup() as group:
            changed = group.create_task(waiting)
            disconnected = group.create_task(_receive(client))
            ends = [disconnected, group.create_task(self._stopping.wait())]
            done, others = await asyncio.wait([changed, *ends], return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
        return done == {changed}


async def end(client: Client) -> None:
    """End a stream cleanly; the client reconnects."""
    await client.send(_END)


async def _receive(client: Client) -> None:
    await client.receive()


def _is_paused(row: Sandbox) -> bool:
    """Return whether only a request would resume the sandbox."""
    is_down = row.state in {State.PAUSING, State.PAUSED, State.RESUMING}
    return row.target is Target.PAUSED or (is_down and row.target is Target.RUNNING)


def _without_start(send: Send) -> Send:
    async def send_rest(message: Message) -> None:
        if message["type"] != "http.response.start":
            await send(message)
        elif message["status"] != HTTPStatus.OK:
            raise StreamRejected

    return send_rest
