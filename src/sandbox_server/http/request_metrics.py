from dataclasses import dataclass
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_http.tunnel import SWITCHED
from sandbox_server.metrics.instruments import HTTP_REQUESTS, HTTP_SECONDS

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ANSWER = "none"
_NO_ROUTE = "none"


@dataclass(frozen=True)
class NamedRoute:
    """Stands in a scope for a route, where there is none of FastAPI's."""

    path: str


class RequestMetrics:
    """Counts requests by their routes, never by what callers put into a path or for a method."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        status = _NO_ANSWER
        lasts = False

        async def send_noted(message: Message) -> None:
            nonlocal status, lasts
            if message["type"] == "http.response.start":
                status = str(message["status"])
                content_type = Headers(raw=message.get("headers", [])).get("content-type", "")
                lasts = content_type.startswith("text/event-stream")
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", _NO_ROUTE)
            HTTP_REQUESTS.labels(method, route, str(scope.get(SWITCHED, status))).inc()
            if not lasts:  # how long somebody follows says nothing about the server
                HTTP_SECONDS.labels(method, route).observe(perf_counter() - began)
