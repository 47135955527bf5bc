import asyncio
import json
from collections.abc import Mapping
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from sandbox_tools.agent_server.event_encoding import encode_event
from sandbox_tools.agent_server.session import Session
from sandbox_tools.agent_server.sessions import Sessions
from sandbox_tools.coding_agents.prompts import Prompt, RequestRefused


class Connection:
    """A client: handles its requests and sends events of the sessions that it follows."""

    def __init__(self, socket: ServerConnection, sessions: Sessions) -> None:
        self._socket = socket
        self._sessions = sessions
        self._following: dict[str, asyncio.Task[None]] = {}
        self._ends_with_it: set[Session] = set()

    async def serve(self) -> None:
        """Handle requests until the client disconnects; runs continue unless on_disconnect says otherwise."""
        try:
            async for text in self._socket:
                await self._receive(text)
        except ConnectionClosed:
            pass
        finally:
            for following in self._following.values():
                following.cancel()
            for session in self._ends_with_it:
                session.interrupt()

    async def _receive(self, text: str | bytes) -> None:
        request: Mapping[str, Any] = {}
        try:
            request = _parse(text)
            await self._run_prompt(request)
        except RequestRefused as refused:
            answer = {"type": "refused", "code": refused.code, "error": str(refused)}
            named = {name: request[name] for name in ("id", "session_id") if name in request}
            await self._send(encode_event(answer | named))

    async def _run_prompt(self, request: Mapping[str, Any]) -> None:
        kind, rest = (
            request.get("type"),
            {n: v for n, v in request.items() if n not in ("type", "id")},
        )
        if kind == "prompt":
            self._prompt(Prompt.parse(rest))
        elif kind == "attach":
            self._follow(self._named(request), _number(request.get("after")))
        elif kind == "interrupt":
            self._named(request).interrupt()
        elif kind == "sessions":
            answer = {"type": "sessions", "sessions": self._sessions.describe()}
            await self._send(encode_event(answer))
        else:
            raise RequestRefused(
                "bad-request", "`type` must be one of prompt, attach, interrupt, sessions."
            )

    def _prompt(self, prompt: Prompt) -> None:
        session, after = self._sessions.begin(prompt)
        self._ends_with_it.discard(session)
        if prompt.on_disconnect == "interrupt":
            self._ends_with_it.add(session)
        following = self._following.get(session.record.id)
        if following is None or following.done():
            self._follow(session, after)

    def _follow(self, session: Session, after: int | None) -> None:
        before = self._following.pop(session.record.id, None)
        if before is not None:
            before.cancel()
        following = asyncio.create_task(self._forward(session, after))
        self._following[session.record.id] = following

    async def _forward(self, session: Session, after: int | None) -> None:
        try:
            async for event in session.follow(after):
                await self._send(event)
        except ConnectionClosed:
            pass

    def _named(self, request: Mapping[str, Any]) -> Session:
        session_id = request.get("session_id")
        if not isinstance(session_id, str):
            raise RequestRefused("bad-request", "`session_id` is required.")
        return self._sessions.get(session_id)

    async def _send(self, event: bytes) -> None:
        await self._socket.send(event, text=True)


def _parse(text: str | bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestRefused("bad-request", "Every message must be a JSON object.")
    return request


def _number(after: Any) -> int | None:
    if after is not None and (not isinstance(after, int) or isinstance(after, bool)):
        raise RequestRefused("bad-request", "`after` must be an integer, the `seq` of an event.")
    return after
