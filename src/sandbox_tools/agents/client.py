import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

_MAX_EVENT = 1 << 20
_SECONDS_TO_START = 20.0
_RETRY_SECONDS = 0.2


class AgentServerUnavailable(Exception):
    """The agent server is not running or rejects the connection."""


class AgentConnection:
    """A connection to the agent server for one prompt."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._session_id: str | None = None
        self._is_interrupted = False

    async def run_prompt(self, prompt: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Send the prompt and yield events up to `result` or `refused`."""
        await self._send({"type": "prompt", **prompt})
        try:
            async for text in self._socket:
                event = json.loads(text)
                await self._track_session(event)
                yield event
                if event["type"] in ("result", "refused"):
                    return
        except ConnectionClosed:
            pass
        raise AgentServerUnavailable("The agent server ended before the agent finished.")

    async def interrupt(self) -> None:
        """Interrupt the agent; its result follows."""
        self._is_interrupted = True
        if self._session_id is not None:
            await self._send({"type": "interrupt", "session_id": self._session_id})

    async def _track_session(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "started":
            self._session_id = event["session_id"]
            if self._is_interrupted:
                await self.interrupt()

    async def _send(self, request: Mapping[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(request))
        except ConnectionClosed:
            raise AgentServerUnavailable("The agent server has closed the connection.") from None


@asynccontextmanager
async def connect_to_agent_server(port: int, token: str | None) -> AsyncIterator[AgentConnection]:
    """Connect to this sandbox's agent server; wait if it is still starting."""
    if token is None:
        raise AgentServerUnavailable(
            "This sandbox has no settings (/etc/sandbox/tools.json), so its agent server accepts no connections."
        )
    socket = await _connect(port, token)
    try:
        yield AgentConnection(socket)
    finally:
        # Shielded: closing the connection is what stops the agent after a cancellation.
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
                    await asyncio.sleep(_RETRY_SECONDS)
    except OSError:
        raise AgentServerUnavailable(
            "No agent server is running in this sandbox. The template agent-full includes one."
        ) from None
    except InvalidStatus as error:
        status = error.response.status_code
        raise AgentServerUnavailable(
            f"The agent server rejected the sandbox's token (HTTP status {status})."
        ) from None
    except WebSocketException as error:
        raise AgentServerUnavailable(
            f"The server on port {port} is not an agent server: {error}."
        ) from None


async def _connect_now(port: int, token: str) -> ClientConnection:
    return await connect(
        f"ws://127.0.0.1:{port}/",
        additional_headers={"Authorization": f"Bearer {token}"},
        max_size=_MAX_EVENT,
        compression=None,
        proxy=None,
        # The sandbox may be paused for any time.
        ping_interval=None,
    )
