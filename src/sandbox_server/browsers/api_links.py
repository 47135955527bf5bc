"""Requests with a token in their path: on the API's host for programs, on the sandbox's own host for pages."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandbox_client.models import BrowserLinkCreate, BrowserLinkRead
from sandbox_server.browsers.cdp.proxy import CdpProxy, CdpRequest
from sandbox_server.browsers.live_view import LiveView
from sandbox_server.browsers.tokens import (
    BROWSER_PATH,
    BrowserCaller,
    BrowserTokens,
    BrowserUse,
    in_a_while,
    time_left,
    token_of,
)
from sandbox_server.browsers.urls import BrowserLinks
from sandbox_server.browsers.webdriver import WEBDRIVER_PATH, WebDriverProxy
from sandbox_server.domain import errors
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import TicketRefused
from sandbox_server.domain.service_ports import CDP_PORT
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on, find_component
from sandbox_server.http.faults import Malformed
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.request_metrics import NamedRoute
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.targets import PortTarget, PublicAddress
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.structured_logging import add_to_log_context

ROUTE_PATH = "/browser/{token}{rest:path}"

_ROUTE = NamedRoute(ROUTE_PATH)


class BrowserRoute:
    """ASGI app of the paths below `/browser/` of the API; the caller is authenticated by the token in the path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = _ROUTE
        caller: BrowserCaller = scope["state"]["caller"]
        add_to_log_context(sandbox_id=caller.sandbox_id)
        client = Client(scope, receive, send)
        public = find_component(scope, PublicAddress)
        scheme = public.scheme_at(client.host, otherwise=scope["scheme"])
        request = _request(client, caller, f"{scheme}://{client.host}", has_own_host=False)
        if request.path.startswith(f"{WEBDRIVER_PATH}/") and not request.only_watches:
            await find_component(scope, WebDriverProxy).serve(request)
        else:
            await find_component(scope, CdpProxy).serve(request)


class BrowserHosts:
    """Answers requests below `/browser/` of the host of a browser's port, where its pages may run scripts."""

    def __init__(self, proxy: CdpProxy, tokens: BrowserTokens, live_view: LiveView) -> None:
        self._proxy = proxy
        self._tokens = tokens
        self._live_view = live_view

    def covers(self, target: PortTarget, path: str) -> bool:
        return target.port == CDP_PORT and path.startswith(BROWSER_PATH)

    async def authenticate(self, target: PortTarget, path: str) -> BrowserCaller:
        """Find the caller; the token must be for this sandbox."""
        caller = await self._tokens.find(token_of(path) or "")
        if caller.sandbox_id != target.sandbox_id:
            raise TicketRefused("The link is for another sandbox.")
        return caller

    async def forward(self, client: Client, caller: Caller, origin: str) -> Response | None:
        """Forward a request, or answer one of the live view's page."""
        assert isinstance(caller, BrowserCaller)
        request = _request(client, caller, origin, has_own_host=True)
        if self._live_view.covers(request.path):
            return await self._live_view.answer(request, caller)
        await self._proxy.serve(request)
        return None


def _request(
    client: Client, caller: BrowserCaller, origin: str, *, has_own_host: bool
) -> CdpRequest:
    if caller.use is BrowserUse.RECORDINGS:
        raise TicketRefused("This link is for recordings, not for the browser.")
    raw_path: bytes = client.scope["raw_path"]
    prefix = f"{BROWSER_PATH}{token_of(client.scope['path'])}"
    if not raw_path.startswith(prefix.encode()):
        raise Malformed("Percent-encoding is not allowed in the token.")
    return CdpRequest(
        client=client,
        caller=caller,
        sandbox_id=caller.sandbox_id,
        path=raw_path.decode("ascii").removeprefix(prefix),
        base=f"{origin}{prefix}",
        has_own_host=has_own_host,
        is_driver=caller.use is BrowserUse.DRIVE,
        only_watches=caller.use is BrowserUse.WATCH,
        lifetime=None if caller.use is BrowserUse.DRIVE else time_left(caller.expires_at),
    )


router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/browser", tags=["browsers"]
)

BrowserLinksDep = Annotated[BrowserLinks, depends_on(BrowserLinks)]
ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]


@router.post("/links", status_code=201)
@may_fail_with(errors.TicketRefused)
async def create_browser_links(
    sandbox_id: SandboxIdPath,
    body: Annotated[BrowserLinkCreate, Body(default_factory=BrowserLinkCreate)],
    caller: Operator,
    controller: ControllerDep,
    links: BrowserLinksDep,
) -> BrowserLinkRead:
    """Create URLs of the sandbox's browser for CDP, WebDriver and people. They expire after `ttl_s`, and earlier if your key is revoked."""
    row = await controller.get(caller, sandbox_id)
    urls = links.links(
        caller,
        row.id,
        expires_at=in_a_while(timedelta(seconds=body.ttl_s)),
        live_use=BrowserUse.WATCH if body.live_mode == "view" else BrowserUse.VIEW,
    )
    return BrowserLinkRead.model_validate(urls, from_attributes=True)
