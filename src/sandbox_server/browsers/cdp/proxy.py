import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from starlette.types import Scope

from sandbox_http.headers import wanted_upgrade
from sandbox_http.tunnel import Connection
from sandbox_http.upstream import Upstream
from sandbox_server.browsers.cdp.answers import CollectedAnswer, internal_client, with_public_urls
from sandbox_server.browsers.cdp.policy import CdpPolicy, PolicySource
from sandbox_server.browsers.cdp.provider import forward_to_provider
from sandbox_server.browsers.cdp.relay import EXPIRED, Close, Relay
from sandbox_server.browsers.cdp.wakefulness import SandboxWakefulness
from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    BrowserNotRunning,
    BrowserPathNotFound,
    PortBroken,
    PortNotOpen,
    SandboxError,
    TicketRefused,
    Unauthenticated,
)
from sandbox_server.domain.service_ports import CDP_PORT
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.providers.protocol.errors import LacksCapability
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.exchange import Relay as MessageRelay
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController

_LOCAL = f"localhost:{CDP_PORT}"
_WEBSOCKET = re.compile(r"/devtools/(browser|page)/[A-Za-z0-9-]{1,100}")
_BROWSER = frozenset({"", "/", "/devtools/browser", "/devtools/browser/"})
_DESCRIPTIONS = re.compile(r"/json(?:/(?:version|list|new))?/?")
_FORWARDED = re.compile(r"/json/(?:protocol|activate/[^/]+|close/[^/]+)/?|/devtools/.*", re.DOTALL)
# A new connection waits this long besides a second for each attempt.
_PAUSES_BETWEEN_ATTEMPTS = tuple(timedelta(seconds=s) for s in (0.25, 0.5, 1.0))

# The engine keeps the connection while the sandbox is paused, and the next message resumes it.
_KEEP_OPEN = (b"x-keep-while-paused", b"1")
_LONGEST_REASON = 123  # bytes, by RFC 6455

# Chromium and chromedriver refuse pages of other origins, and frames must not be compressed to be inspected.
_DROPPED = frozenset({b"origin", b"referer", b"cookie", b"sec-websocket-extensions"})


@dataclass(frozen=True, kw_only=True)
class CdpRequest:
    """A request of a client to a browser."""

    client: Client
    caller: Caller
    sandbox_id: str
    path: str
    """The path at the browser, such as `/json/version`; an empty one with an upgrade is the browser's WebSocket."""
    base: str
    """The URL below which the client reaches this browser, which replaces the browser's own in its answers."""
    has_own_host: bool = False
    """Whether that URL has a host name of the sandbox; only then browsers run scripts of its pages."""
    is_driver: bool = True
    only_watches: bool = False
    """Whether the client may see the browser but change nothing."""
    lifetime: timedelta | None = None
    """How long the connection may last."""


class CdpProxy:
    """Forwards requests and WebSockets of the DevTools protocol to the Chromium in a sandbox; they resume a paused one."""

    def __init__(
        self, controller: SandboxController, port_proxy: PortProxy, policies: PolicySource
    ) -> None:
        self._controller = controller
        self._port_proxy = port_proxy
        self._policies = policies

    async def serve(self, request: CdpRequest) -> None:
        """Answer a request. Raises only before the response has started."""
        scope = request.client.scope
        drop_client_headers(scope)
        try:
            if wanted_upgrade(scope["headers"]) is not None:
                await self._attach(request)
            elif request.only_watches:
                raise TicketRefused("This link is for watching only.")
            elif _DESCRIPTIONS.fullmatch(request.path):
                await self._describe(request)
            elif _FORWARDED.fullmatch(request.path):
                await self._forward(request, request.client, request.path)
            else:
                raise BrowserPathNotFound(request.path)
        except PortNotOpen:
            raise BrowserNotRunning from None

    async def list_targets(self, caller: Caller, sandbox_id: str) -> list[dict[str, Any]]:
        """List the targets of the browser, as `/json/list` does."""
        found = await self._read(caller, sandbox_id, "/json/list")
        return found if isinstance(found, list) else []

    async def _attach(self, request: CdpRequest) -> None:
        path = request.path
        used = await self._find(request)
        policy = await self._policies.find(used.row)
        if path in _BROWSER:
            path = await self._find_browser(request)
        matched = _WEBSOCKET.fullmatch(path)
        if matched is None:
            raise BrowserPathNotFound(path)
        page_id = path.rpartition("/")[2] if matched[1] == "page" else None
        relay = partial(self._relay, request, policy, used.row, page_id)
        await self._forward(request, request.client, path, relay=relay)

    async def _find(self, request: CdpRequest) -> UsableSandbox:
        if request.only_watches:
            return await self._controller.look_into(request.caller, request.sandbox_id)
        return await self._port_proxy.find(request.caller, request.sandbox_id)

    async def _find_browser(self, request: CdpRequest) -> str:
        version = await self._read_patiently(request)
        url = version.get("webSocketDebuggerUrl", "") if isinstance(version, dict) else ""
        return str(url).partition(_LOCAL)[2]

    async def _read_patiently(self, request: CdpRequest) -> Any:
        """Wait for a browser that has crashed and is started again."""
        for pause in _PAUSES_BETWEEN_ATTEMPTS:
            try:
                return await self._read_version(request)
            except PortNotOpen:
                await asyncio.sleep(pause.total_seconds())
        return await self._read_version(request)

    async def _read_version(self, request: CdpRequest) -> Any:
        return await self._read(
            request.caller, request.sandbox_id, "/json/version", only_watches=request.only_watches
        )

    async def _relay(
        self,
        request: CdpRequest,
        policy: CdpPolicy,
        row: Sandbox,
        page_id: str | None,
        client: Connection,
        server: Upstream,
        *,
        head: bytes,
    ) -> None:
        wakefulness = SandboxWakefulness(self._controller, request.caller, row)
        explain = partial(self._explain_loss, request, server)
        relay = Relay(
            policy,
            wakefulness,
            page_id=page_id,
            only_watches=request.only_watches,
            explain_loss=explain,
        )
        watch = asyncio.create_task(self._close_at_end(relay, wakefulness))
        expiry = _after(request.lifetime, partial(relay.close, EXPIRED))
        if request.is_driver:
            policy.on_driver_connected()
        try:
            await relay.run(client, server, head=head)
        finally:
            watch.cancel()
            if expiry is not None:
                expiry.cancel()
            wakefulness.release()
            if request.is_driver:
                policy.on_driver_left()

    async def _close_at_end(self, relay: Relay, wakefulness: SandboxWakefulness) -> None:
        try:
            row = await wakefulness.until_ended()
        except SandboxError as error:
            relay.close(Close(1011, _short(str(error))))
        else:
            relay.close(_of_end(row))

    async def _explain_loss(self, request: CdpRequest, server: Upstream) -> Close:
        match server.failure:
            case None:
                return await self._find_reason(request)
            case Unauthenticated():
                return Close(4401, "The key or link is no longer valid.")
            case _:
                return Close(1001, "The server is stopping: reconnect.")

    async def _find_reason(self, request: CdpRequest) -> Close:
        try:
            row = await self._controller.get(request.caller, request.sandbox_id)
        except SandboxError as error:
            return Close(1011, _short(str(error)))
        if row.target is Target.GONE or row.state in ENDED:
            return _of_end(row)
        if row.state is not State.RUNNING:
            return Close(1011, "The sandbox was paused: reconnect to resume it.")
        return Close(1011, "The browser has ended or closed the connection: reconnect.")

    async def _describe(self, request: CdpRequest) -> None:
        """Forward a description of the browser or its targets, with URLs that work for the client."""
        answer = CollectedAnswer(request.client)
        await self._forward(request, answer.client, request.path)
        await answer.send(lambda body: with_public_urls(body, request.base, local=_LOCAL))

    async def _read(
        self, caller: Caller, sandbox_id: str, path: str, *, only_watches: bool = False
    ) -> Any:
        collected = CollectedAnswer(internal_client(path))
        request = CdpRequest(
            client=collected.client,
            caller=caller,
            sandbox_id=sandbox_id,
            path=path,
            base="",
            only_watches=only_watches,
        )
        try:
            await self._forward(request, collected.client, path)
            return json.loads(collected.body)
        except ValueError:
            raise PortBroken(CDP_PORT, "is not a browser") from None

    async def _forward(
        self,
        request: CdpRequest,
        client: Client,
        path: str,
        *,
        relay: MessageRelay | None = None,
    ) -> None:
        forwarded = ProxyRequest(
            client=client,
            caller=request.caller,
            target=PortTarget(request.sandbox_id, CDP_PORT),
            origin=PublicOrigin(
                scheme="http",
                host=_LOCAL,  # Chromium answers no other host
                client=None,
                path="" if request.has_own_host else "/browser",
            ),
            path=path.encode(),
            relay=relay,
            is_found=relay is not None,
            counts_as_activity=not request.only_watches,
            extra_headers=() if relay is None else (_KEEP_OPEN,),
        )
        try:
            await self._port_proxy.forward(forwarded)
        except LacksCapability:
            used = await self._port_proxy.find(request.caller, request.sandbox_id)
            await forward_to_provider(self._port_proxy, used, forwarded, local=_LOCAL)


def drop_client_headers(scope: Scope) -> None:
    """Remove the headers of a client that programs in the sandbox must not see, or refuse."""
    scope["headers"] = [each for each in scope["headers"] if each[0].lower() not in _DROPPED]


def _after(lifetime: timedelta | None, act: Callable[[], None]) -> asyncio.TimerHandle | None:
    if lifetime is None:
        return None
    return asyncio.get_running_loop().call_later(lifetime.total_seconds(), act)


def _of_end(row: Sandbox) -> Close:
    return Close(1001, _short(f"The sandbox has ended: {row.state_reason or 'deleted'}"))


def _short(reason: str) -> str:
    return reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
