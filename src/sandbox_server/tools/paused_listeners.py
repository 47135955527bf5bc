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
    """The stream was begun before its server was there, which now answers with something else."""


class PausedListeners:
    """Lets those who only listen wait for a sandbox that is paused, without waking it.

    To them it looks like a stream on which nothing is said for a while.
    """

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller
        self._ends = asyncio.Event()

    def end_waits(self) -> None:
        """Let nobody wait any more: the server stops."""
        self._ends.set()

    async def until_running(self, client: Client, caller: Caller, sandbox_id: str) -> Client | None:
        """Give the client, once its sandbox runs, with the stream that was begun for it; None where that has ended."""
        with self._controller.watch(sandbox_id) as follower:
            row = await self._controller.get(caller, sandbox_id)
            if not _is_resting(row):
                return client
            await client.send(_START)
            try:
                while _is_resting(row):
                    await client.send({**_END, "body": b": paused\n\n", "more_body": True})
                    if not await self._outlasts(client, follower.wait(longest=HEARTBEAT)):
                        await end(client)
                        return None
                    row = await self._controller.get(caller, sandbox_id)
            except (SandboxError, *OUTAGES):
                await end(client)
                return None
        return Client(client.scope, client.receive, _continued(client.send))

    async def _outlasts(self, client: Client, waiting: Coroutine[Any, Any, object]) -> bool:
        """Wait, and tell whether the client and the server are still there."""
        async with asyncio.TaskGroup() as group:
            changed = group.create_task(waiting)
            gone = group.create_task(_receive(client))
            ends = [gone, group.create_task(self._ends.wait())]
            done, others = await asyncio.wait([changed, *ends], return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
        return done == {changed}


async def end(client: Client) -> None:
    """End a stream in good order; who listens comes back."""
    await client.send(_END)


async def _receive(client: Client) -> None:
    await client.receive()


def _is_resting(row: Sandbox) -> bool:
    """Tell whether nothing but a use would have it run."""
    is_down = row.state in {State.PAUSING, State.PAUSED, State.RESUMING}
    return row.target is Target.PAUSED or (is_down and row.target is Target.RUNNING)


def _continued(send: Send) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] != "http.response.start":
            await send(message)
        elif message["status"] != HTTPStatus.OK:
            raise StreamRejected

    return send_on
