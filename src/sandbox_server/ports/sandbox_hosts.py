from typing import Protocol

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.secrets import is_secret
from sandbox_server.access.ticket_scope import remove_tickets
from sandbox_server.domain.access import Caller, TicketCaller
from sandbox_server.domain.access import Scope as KeyScope
from sandbox_server.domain.errors import TicketRefused
from sandbox_server.domain.ids import new_id
from sandbox_server.http.access_log import AccessLog
from sandbox_server.http.html_pages import is_navigation, render
from sandbox_server.http.request_metrics import NamedRoute, RequestMetrics
from sandbox_server.http.tenant_limits import ConcurrencyLimit, is_long_lived
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.ports.preview_cookie import find_preview_tickets, set_preview_cookie
from sandbox_server.proxy.client import Client, ClientGone
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget, PublicAddress
from sandbox_server.structured_logging import log_context


class BrowserPaths(Protocol):
    """Paths of a browser's port with a token in them."""

    def covers(self, target: PortTarget, path: str) -> bool: ...

    async def authenticate(self, target: PortTarget, path: str) -> Caller: ...

    async def forward(self, client: Client, caller: Caller, origin: str) -> Response | None: ...


_ROUTE = NamedRoute("{port}-{sandbox_id}")


class SandboxHosts:
    """Middleware: forwards requests to hosts of sandboxes, and passes all others to the API."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        public_address: PublicAddress,
        authenticator: Authenticator,
        port_proxy: PortProxy,
        browsers: BrowserPaths,
        requests: ConcurrencyLimit,
        streams: ConcurrencyLimit,
    ) -> None:
        self._app = app
        self._public_address = public_address
        self._authenticator = authenticator
        self._port_proxy = port_proxy
        self._browsers = browsers
        self._requests = requests
        self._streams = streams
        self._instrumented = AccessLog(RequestMetrics(self._answer))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = Headers(scope=scope).getlist("host") if scope["type"] == "http" else []
        if len(hosts) != 1 or not self._public_address.is_sandbox_host(hosts[0]):
            await self._app(scope, receive, send)
            return
        request_id = new_id()
        scope.setdefault("state", {})["request_id"] = request_id
        scope["route"] = _ROUTE
        with log_context(request_id=request_id):
            await self._instrumented(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            answer = await self._forward(Client(scope, receive, send_watched))
        except Exception as error:
            if started:
                raise
            answer = render(error, scope)
        if answer is not None:
            await answer(scope, receive, send)

    async def _forward(self, client: Client) -> Response | None:
        public_address, scope = self._public_address, client.scope
        target = public_address.find(client.host)
        origin = PublicOrigin(scheme=public_address.scheme, host=client.host, client=client.address)
        with log_context(sandbox_id=target.sandbox_id):
            if self._browsers.covers(target, scope["path"]):
                return await self._forward_to_browser(client, target, origin)
            ticket = remove_tickets(scope)
            try:
                caller = await self._find_caller(client, target, ticket)
            except ClientGone:
                return None
            if ticket is not None and scope["method"] == "GET" and is_navigation(scope):
                return set_preview_cookie(ticket, origin, scope)
            limit = self._streams if is_long_lived(scope) else self._requests
            with limit.acquire(caller.tenant_id):
                await self._port_proxy.forward(
                    ProxyRequest(
                        client=client,
                        caller=caller,
                        target=target,
                        origin=origin,
                        path=scope["raw_path"],
                    )
                )
        return None

    async def _forward_to_browser(
        self, client: Client, target: PortTarget, origin: PublicOrigin
    ) -> Response | None:
        caller = await self._browsers.authenticate(target, client.scope["path"])
        limit = self._streams if is_long_lived(client.scope) else self._requests
        with limit.acquire(caller.tenant_id):
            return await self._browsers.forward(client, caller, origin.url)

    async def _find_caller(self, client: Client, target: PortTarget, ticket: str | None) -> Caller:
        authenticator, scope = self._authenticator, client.scope
        key = _find_key(Headers(scope=scope))
        if key is not None:
            caller = await authenticator.authenticate(key)
            caller.require(KeyScope.SANDBOXES)
            return caller
        if ticket is not None:
            return _require_port(await authenticator.authenticate_ticket(ticket), target)
        return await authenticator.authenticate_preview(
            find_preview_tickets(scope, target, self._public_address),
            sandbox_id=target.sandbox_id,
            port=target.port,
            require_present=client.require_present,
        )


def _find_key(headers: Headers) -> str | None:
    """Find an API key of this server. Other values are credentials of the application."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    candidates = (
        bearer.strip() if scheme.lower() == "bearer" else "",
        headers.get("x-api-key", ""),
    )
    return next((key for key in candidates if is_secret(key)), None)


def _require_port(caller: TicketCaller, target: PortTarget) -> TicketCaller:
    # Only a ticket for this port is accepted: pages of the sandbox may read their URLs.
    if (caller.sandbox_id, caller.port) != (target.sandbox_id, target.port):
        raise TicketRefused("The ticket is for another port or sandbox.")
    return caller
