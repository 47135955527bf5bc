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
    """Stands in for a FastAPI route in the scope of requests that have none."""

    path: str


class RequestMetrics:
    """Counts requests by route template, so that clients cannot create labels with paths or methods."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = perf_counter()
        status = _NO_ANSWER
        is_stream = False

        async def send_recording_status(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = str(message["status"])
                content_type = Headers(raw=message.get("headers", [])).get("content-type", "")
                is_stream = content_type.startswith("text/event-stream")
            await send(message)

        try:
            await self._app(scope, receive, send_recording_status)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", _NO_ROUTE)
            HTTP_REQUESTS.labels(method, route, str(scope.get(SWITCHED, status))).inc()
            if not is_stream:  # the duration of a stream says nothing about the server
                HTTP_SECONDS.labels(method, route).observe(perf_counter() - started_at)
