"""What surrounds every request, outside of any route; plain ASGI, since each layer costs every request."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from sandbox_server.domain.ids import new_id
from sandbox_server.http import problems
from sandbox_server.http.faults import BodyTooLarge, Malformed
from sandbox_server.http.streamed import is_streamed
from sandbox_server.structured_logging import log_context

REQUEST_ID = "X-Request-Id"

# Nothing that could end a header, forge a line of the log or fill it.
_SANE_ID = re.compile(r"[A-Za-z0-9._~-]{1,100}")
_SANE_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
# Whatever an answer holds, as a file of a sandbox, no page of ours comes of it, and none may frame it.
_HARMLESS = "default-src 'none'; frame-ancestors 'none'; sandbox"
_STARTS = frozenset({"http.response.start", "websocket.http.response.start"})
_REQUESTS = frozenset({"http", "websocket"})


class RequestIds:
    """Gives each request a name: the caller's if it is a sane one, else ours. Every answer carries it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in _REQUESTS:
            await self._app(scope, receive, send)
            return
        request_id = _choose(Headers(scope=scope).get(REQUEST_ID))
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_named(message: Message) -> None:
            if message["type"] in _STARTS:
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"  # a ticket may be in our URL
                headers.setdefault("Content-Security-Policy", _HARMLESS)
                # A key in a header of our own does not tell a proxy that the answer is for one caller.
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        with log_context(request_id=request_id):
            await self._app(scope, receive, send_named)


class Failures:
    """Answers what no handler expected; with the answer under way, the connection is all that can tell."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in _REQUESTS:
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


class Sanity:
    """Turns away what no honest client sends: no host or several, and NUL, which PostgreSQL's texts cannot have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in _REQUESTS:
            hosts = Headers(scope=scope).getlist("host")
            if len(hosts) != 1 or _SANE_HOST.fullmatch(hosts[0]) is None:
                raise Malformed("It needs one header Host with the name of a host.")
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                raise Malformed("Its URL has a NUL character.")
        await self._app(scope, receive, send)


class BodyLimit:
    """Stops reading a body where it is larger than allowed, whether or not it said so before; not what is streamed."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_streamed(scope):
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        received = 0

        async def receive_some() -> Message:
            nonlocal received
            # A client that waits for "100 Continue" is told before it sends anything.
            if declared.isdecimal() and int(declared) > self._limit:
                raise BodyTooLarge(self._limit)
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise BodyTooLarge(self._limit)
            return message

        await self._app(scope, receive_some, send)


def _choose(sent: str | None) -> str:
    return sent if sent is not None and _SANE_ID.fullmatch(sent) else new_id()
