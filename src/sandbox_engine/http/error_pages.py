"""Responses to traffic that reaches no application in a sandbox.

Programs get the JSON of E2B's proxy, which its SDKs parse; browsers get a page.
"""

import json
import re
from dataclasses import dataclass
from html import escape

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_ANY_ORIGIN = {"Access-Control-Allow-Origin": "*"}

_BROWSER = re.compile("mozilla|chrome|safari|firefox|edge|opera|msie", re.IGNORECASE)
_FETCHED_BY_SCRIPT = frozenset({"cors", "no-cors", "same-origin", "websocket"})

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body>
</html>
"""


@dataclass(frozen=True)
class ErrorPage:
    """An ASGI app that answers with the reason why a request was not forwarded."""

    status: int
    message: str
    sandbox_id: str
    title: str
    port: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            response = _preflight(headers)
        elif _is_navigation(headers):
            response = self._page()
        else:
            response = self._json()
        await response(scope, receive, send)

    def _json(self) -> Response:
        fields: dict[str, object] = {"sandboxId": self.sandbox_id, "message": self.message}
        if self.port is not None:
            fields["port"] = self.port
        fields["code"] = self.status
        body = json.dumps(fields, separators=(",", ":"))
        return Response(body, self.status, _ANY_ORIGIN, "application/json; charset=utf-8")

    def _page(self) -> Response:
        where = self.sandbox_id if self.port is None else f"{self.sandbox_id}, port {self.port}"
        page = _PAGE.format(title=escape(self.title), text=escape(f"{self.message}: {where}"))
        return Response(page, self.status, _ANY_ORIGIN, "text/html; charset=utf-8")


def sandbox_not_found(sandbox_id: str) -> ErrorPage:
    """Report that the sandbox does not exist, or is paused without auto-resume."""
    return ErrorPage(502, "The sandbox was not found", sandbox_id, "Sandbox not found")


def port_closed(sandbox_id: str, port: int) -> ErrorPage:
    """Report that nothing listens on the port."""
    message = "The sandbox is running but port is not open"
    return ErrorPage(502, message, sandbox_id, "Closed Port Error", port)


def traffic_token_missing(sandbox_id: str) -> ErrorPage:
    """Report that the sandbox is private and the request has no traffic token."""
    message = (
        "Sandbox is secured with traffic access token. "
        "Token header 'e2b-traffic-access-token' is missing"
    )
    return ErrorPage(403, message, sandbox_id, "This sandbox is private")


def traffic_token_invalid(sandbox_id: str) -> ErrorPage:
    """Report that the sandbox is private and the traffic token is wrong."""
    message = (
        "Sandbox is secured with traffic access token. "
        "Provided token in header 'e2b-traffic-access-token' is invalid"
    )
    return ErrorPage(403, message, sandbox_id, "This sandbox is private")


def resume_refused(sandbox_id: str) -> ErrorPage:
    """Report that the request's credentials do not allow to resume the sandbox."""
    message = (
        "This sandbox can't be resumed with the credentials provided. "
        "Check your access token and try again."
    )
    return ErrorPage(403, message, sandbox_id, "This sandbox is paused")


def machine_full(sandbox_id: str, message: str) -> ErrorPage:
    """Report that the machine has no room to resume the sandbox."""
    return ErrorPage(503, message, sandbox_id, "No room on this machine")


def bad_route(message: str) -> ASGIApp:
    """Report that the host or headers do not name a valid sandbox and port."""
    return PlainTextResponse(message, 400)


def unsupported(message: str) -> ASGIApp:
    """Report that the request cannot be forwarded unchanged."""
    return PlainTextResponse(message, 501)


def unroutable() -> ASGIApp:
    """Report that the sandbox sent no valid response."""
    return PlainTextResponse("Failed to route request to sandbox", 502)


def _preflight(headers: Headers) -> Response:
    allowed = _ANY_ORIGIN | {"Access-Control-Allow-Methods": "*", "Access-Control-Max-Age": "86400"}
    wanted = headers.get("access-control-request-headers")
    if wanted is not None:
        allowed["Access-Control-Allow-Headers"] = wanted
    return Response(None, 204, allowed)


def _is_navigation(headers: Headers) -> bool:
    """Return whether a browser opens a page, by the rules of E2B's proxy."""
    if not _BROWSER.search(headers.get("user-agent", "")):
        return False
    mode = headers.get("sec-fetch-mode")
    if mode == "navigate":
        return True
    accept = headers.get("accept", "")
    wants_json = "application/json" in accept and "text/html" not in accept
    return not (wants_json or mode in _FETCHED_BY_SCRIPT or "x-requested-with" in headers)
