import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

_MOST_OF_AN_EVENT = 1 << 20
_SECONDS_TO_START = 20.0
_MOMENT = 0.2


class Unreachable(Exception):
    """There is no agent server to ask, or none that lets us in."""


class AgentLink:
    """One prompt to the agent server, and what comes of it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._session_id: str | None = None
        self._is_unwanted = False

    async def carry_out(self, prompt: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Ask, and give each event to the `result`, or to the only one, `refused`."""
        await self._send({"type": "prompt", **prompt})
        try:
            async for text in self._socket:
                event = json.loads(text)
                await self._note(event)
                yield event
                if event["type"] in ("result", "refused"):
                    return
        except ConnectionClosed:
            pass
        raise Unreachable("The agent server ended before the agent was done.")

    async def interrupt(self) -> None:
        """Have the agent stop; its result follows."""
        self._is_unwanted = True
        if self._session_id is not None:
            await self._send({"type": "interrupt", "session_id": self._session_id})

    async def _note(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "started":
            self._session_id = event["session_id"]
            if self._is_unwanted:
                await self.interrupt()

    async def _send(self, asked: Mapping[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(asked))
        except ConnectionClosed:
            raise Unreachable("The agent server has closed the connection.") from None


@asynccontextmanager
async def linked(port: int, token: str | None) -> AsyncIterator[AgentLink]:
    """Connect to this sandbox's agent server, which may be about to start."""
    if token is None:
        raise Unreachable(
            "This sandbox has no settings (/etc/sandbox/tools.json), so its agent server lets nobody in."
        )
    socket = await _connect(port, token)
    try:
        yield AgentLink(socket)
    finally:
        # Whoever was cancelled hangs up all the same: that is what stops the agent.
        await asyncio.shield(asyncio.ensure_future(socket.close()))


async def _connect(port: int, token: str) -> ClientConnection:
    try:
        async with asyncio.timeout(_SECONDS_TO_START):
            while True:
                try:
                    return await _connect_now(port, token)
                except OSError:
                    if find_spec("claude_agent_sdk") is None:
                        raise
                    await asyncio.sleep(_MOMENT)
    except OSError:
        raise Unreachable(
            "There is no agent server in this sandbox. The template agent-full has one."
        ) from None
    except InvalidStatus as error:
        status = error.response.status_code
        raise Unreachable(f"The agent server refuses the sandbox's token ({status}).") from None
    except WebSocketException as error:
        raise Unreachable(f"What listens on port {port} is no agent server: {error}.") from None


async def _connect_now(port: int, token: str) -> ClientConnection:
    return await connect(
        f"ws://127.0.0.1:{port}/",
        additional_headers={"Authorization": f"Bearer {token}"},
        max_size=_MOST_OF_AN_EVENT,
        compression=None,
        proxy=None,
        # The sandbox may be paused in between, for any time.
        ping_interval=None,
    )
