from typing import Protocol
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.login_cookie import find_login, require_same_origin
from sandbox_server.access.metrics_access import METRICS_PATH, MetricsAccess
from sandbox_server.access.secrets import is_secret
from sandbox_server.access.ticket_scope import remove_tickets, require_ticket_scope
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import Unauthenticated
from sandbox_server.proxy.targets import PublicAddress

PUBLIC_PATHS = frozenset({"/", "/ui", "/healthz", "/readyz", "/version", "/openapi.json", "/docs"})
# Webhooks are signed. Below /git/ sandboxes identify themselves as git clients do; see git/endpoint/access.py.
_PUBLIC_PREFIXES = ("/docs/", "/page/", "/ui/", "/v1/webhooks/", "/git/")


class PathTokens(Protocol):
    """Tokens in paths, for clients that can neither send headers nor keep a query parameter."""

    async def find_holder(self, path: str) -> Caller | None:
        """Find the caller whose token is in the path; None where paths contain none."""


_CONNECT = "/browserbase/connect"
_BROWSERBASE = "/browserbase/"  # its clients send the key in a header of their own


class Authentication:
    """Requires an API key, a ticket or a login for every path that is not public, before the body is read.

    It runs before routing, so that no route can omit it and an unauthenticated client cannot probe for routes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        path_tokens: PathTokens,
        metrics: MetricsAccess,
        public_address: PublicAddress,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._path_tokens = path_tokens
        self._public_address = public_address
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"} and not is_public(scope["path"]):
            secret = _find_secret(scope, Headers(scope=scope))
            if scope["path"] == METRICS_PATH:
                self._metrics.require(scope, secret)
            else:
                scope["state"]["caller"] = await self._find_caller(scope, secret)
        await self._app(scope, receive, send)

    async def _find_caller(self, scope: Scope, secret: str | None) -> Caller:
        holder = await self._path_tokens.find_holder(scope["path"])
        if holder is not None:
            return holder
        ticket = remove_tickets(scope)
        if secret is not None:
            return await self._authenticator.authenticate(secret)
        if ticket is None:
            return await self._find_signed_in(scope)
        caller = await self._authenticator.authenticate_ticket(ticket)
        require_ticket_scope(caller, scope)
        return caller

    async def _find_signed_in(self, scope: Scope) -> Caller:
        login = find_login(scope, self._public_address)
        if login is None:
            raise Unauthenticated
        require_same_origin(scope, self._public_address)
        return await self._authenticator.authenticate_login(login)


def is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(_PUBLIC_PREFIXES)


def _find_secret(scope: Scope, headers: Headers) -> str | None:
    """Find the API key; beside `X-API-Key`, `Authorization` may be meant for the server in a sandbox."""
    if scope["path"].startswith(_BROWSERBASE):
        sent = headers.get("x-bb-api-key") or headers.get("x-api-key")
        return sent or _find_in_query(scope)
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    bearer = secret.strip() if scheme.lower() == "bearer" else None
    if bearer is not None and is_secret(bearer):
        return bearer
    return headers.get("x-api-key", bearer)


def _find_in_query(scope: Scope) -> str | None:
    """Find the API key in the URL of a driver's connection; drivers can rarely send headers."""
    if not scope["path"].startswith(_CONNECT):
        return None
    values = parse_qs(scope["query_string"].decode("latin-1")).get("apiKey")
    return values[0] if values else None
