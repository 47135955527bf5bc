"""What surrounds every request, outside of any route; plain ASGI, since each layer costs every request."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from sandbox_server.api import problems
from sandbox_server.domain.ids import new_id
from sandbox_server.log import log_context

REQUEST_ID = "X-Request-Id"

# Nothing that could end a header, forge a line of the log or fill it.
_SANE = re.compile(r"[A-Za-z0-9._~-]{1,100}")


class RequestIds:
    """Gives each request a name: the caller's if it is a sane one, else ours. Every answer carries it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request_id = _choose(Headers(scope=scope).get(REQUEST_ID))
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_named(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        with log_context(request_id=request_id):
            await self._app(scope, receive, send_named)


class Failures:
    """Answers what no handler expected; with the answer under way, the connection is all that can tell."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        started = False

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_watched)
        except Exception as error:
            if started:
                raise
            answer = problems.render(error, request_id=scope["state"]["request_id"])
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(answer)
            else:
                await answer(scope, receive, send)


def _choose(sent: str | None) -> str:
    return sent if sent is not None and _SANE.fullmatch(sent) else new_id()
