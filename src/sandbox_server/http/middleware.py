"""Middleware around every request; plain ASGI, because each layer is paid for by every request."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from sandbox_server.domain.ids import new_id
from sandbox_server.http import html_pages, problems
from sandbox_server.http.faults import BodyTooLarge, Malformed
from sandbox_server.http.streaming_routes import is_streamed
from sandbox_server.structured_logging import log_context

REQUEST_ID = "X-Request-Id"

# No characters that could end a header or forge a log line, and a bounded length.
_SANE_ID = re.compile(r"[A-Za-z0-9._~-]{1,100}")
_SANE_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
# No response, such as a file of a sandbox, is rendered as a page of this origin or framed by one.
_SANDBOXED = "default-src 'none'; frame-ancestors 'none'; sandbox"
_STARTS = frozenset({"http.response.start", "websocket.http.response.start"})
_PEOPLES_PAGES = "/desktop/"  # opened by people with a link, which may have expired
_REQUESTS = frozenset({"http", "websocket"})


class RequestIds:
    """Sets `X-Request-Id` on every response: the client's if it is well-formed, else a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in _REQUESTS:
            await self._app(scope, receive, send)
            return
        request_id = _choose(Headers(scope=scope).get(REQUEST_ID))
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] in _STARTS:
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"  # a ticket may be in our URL
                headers.setdefault("Content-Security-Policy", _SANDBOXED)
                # A shared cache does not know that `X-API-Key` makes the response private.
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        with log_context(request_id=request_id):
            await self._app(scope, receive, send_with_headers)


class UnexpectedErrors:
    """Renders errors without a handler as 500; once the response has started, only the connection can be closed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in _REQUESTS:
            await self._app(scope, receive, send)
            return
        started = False

        async def send_recording_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_recording_start)
        except Exception as error:
            if started:
                raise
            answer = _render(error, scope)
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(answer)
            else:
                await answer(scope, receive, send)


class RequestChecks:
    """Rejects requests without exactly one valid `Host`, and URLs with NUL, which PostgreSQL cannot store."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in _REQUESTS:
            hosts = Headers(scope=scope).getlist("host")
            if len(hosts) != 1 or _SANE_HOST.fullmatch(hosts[0]) is None:
                raise Malformed("Exactly one Host header with a valid host name is required.")
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                raise Malformed("The URL contains a NUL character.")
        await self._app(scope, receive, send)


class BodyLimit:
    """Limits the size of request bodies, declared or not, except of streamed transfers."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_streamed(scope):
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            # A client that waits for "100 Continue" gets the error before it sends the body.
            if declared.isdecimal() and int(declared) > self._limit:
                raise BodyTooLarge(self._limit)
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise BodyTooLarge(self._limit)
            return message

        await self._app(scope, receive_limited, send)


def _render(error: Exception, scope: Scope) -> Response:
    if scope["type"] == "http" and scope["path"].startswith(_PEOPLES_PAGES):
        return html_pages.render(error, scope)
    return problems.render(error, request_id=scope["state"]["request_id"])


def _choose(sent: str | None) -> str:
    return sent if sent is not None and _SANE_ID.fullmatch(sent) else new_id()
