from functools import partial

from sandbox_http.messages import RequestHead, is_repeatable
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.domain.errors import (
    BackendUnavailable,
    PortBroken,
    PortNotOpen,
    PortSilent,
    SandboxError,
)
from sandbox_server.ports.access_watch import Watch
from sandbox_server.ports.resolver import SandboxResolver
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.client import ClientGone
from sandbox_server.proxy.exchange import (
    RESPONSE_TIMEOUT,
    Exchange,
    ProviderRefused,
    ResponseTimeout,
)
from sandbox_server.proxy.pool import ConnectionPool
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.request import read_request
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController

_FAILURES = (OSError, ProviderRefused, ResponseTimeout, UpstreamInvalid, UpstreamLost)


class PortProxy:
    """Passes HTTP, and what HTTP is upgraded to, on to the servers in sandboxes.

    What authenticated the caller stays here. A sandbox is awake for as long as bytes move.
    """

    def __init__(self, controller: SandboxController, authenticator: Authenticator) -> None:
        self._controller = controller
        self._awake = controller.activity
        self._resolver = SandboxResolver(controller)
        self._pool = ConnectionPool()
        self._watch = Watch(authenticator)

    async def run(self) -> None:
        """End what is under way for callers who lose their access, until cancelled."""
        await self._watch.run()

    def end_streams(self) -> None:
        """Cut what would not end by itself; its callers come again."""
        self._watch.end_lasting()

    def close(self) -> None:
        """Cut all that is under way."""
        self._pool.close()

    async def forward(self, proxy_request: ProxyRequest) -> None:
        """Answer a request with what the server in the sandbox answers; refuse only before any of that was told."""
        to_idempotency = is_repeatable(proxy_request.client.scope)
        failure = await self._attempt(proxy_request, anew=not to_idempotency)
        if to_idempotency and isinstance(
            failure, BackendUnavailable
        ):  # it may have been paused just now
            failure = await self._attempt(proxy_request, anew=True)
        if failure is not None:
            raise failure

    async def _attempt(self, proxy_request: ProxyRequest, *, anew: bool) -> SandboxError | None:
        target, scope = proxy_request.target, proxy_request.client.scope
        if proxy_request.counts_as_activity:
            used = await self._resolver.find(proxy_request.caller, target.sandbox_id, anew=anew)
        else:
            used = await self._controller.look_into(proxy_request.caller, target.sandbox_id)
        address = used.backend.port_address(used.access, target.port)
        request = read_request(
            scope,
            address,
            proxy_request.origin,
            path=proxy_request.path,
            extra_headers=proxy_request.extra_headers,
        )
        exchange = Exchange(
            proxy_request.client,
            proxy_request.origin,
            address,
            find_refusal=used.backend.find_refusal,
            note=partial(self._awake.note, used.row)
            if proxy_request.counts_as_activity
            else _nothing,
            expect_no_end=self._watch.expect_no_end,
            sends_close_frame=proxy_request.sends_close_frame,
        )
        try:
            await self._send(proxy_request, exchange, request, address)
        except ClientGone:
            return None
        except _FAILURES as error:
            return _explain(error, used, address)
        return None

    async def _send(
        self,
        proxy_request: ProxyRequest,
        exchange: Exchange,
        request: RequestHead,
        address: PortAddress,
    ) -> None:
        idle = None if request.upgrade else self._pool.take_idle(address)
        if idle is not None:
            try:
                await self._exchange(proxy_request, exchange, request, address, idle)
            except UpstreamLost:
                # The provider may have closed a connection that it left open; what may run twice is sent again.
                if not request.is_repeatable:
                    raise
            else:
                return
        upstream = await self._pool.connect(address)
        await self._exchange(proxy_request, exchange, request, address, upstream)

    async def _exchange(
        self,
        proxy_request: ProxyRequest,
        exchange: Exchange,
        request: RequestHead,
        address: PortAddress,
        upstream: Upstream,
    ) -> None:
        try:
            with self._watch.over(upstream, proxy_request.caller):
                await exchange.forward(request, upstream)
        finally:
            self._pool.release(upstream, address)


def _nothing() -> None:
    pass


def _explain(error: Exception, used: UsableSandbox, address: PortAddress) -> SandboxError:
    match error:
        case ProviderRefused(refusal=PortRefusal.CLOSED):
            return PortNotOpen(address.port)
        case ProviderRefused():
            return BackendUnavailable(used.backend.name, "the sandbox does not run any more")
        case ResponseTimeout():
            return PortSilent(address.port, seconds=RESPONSE_TIMEOUT.total_seconds())
        case UpstreamInvalid():
            return PortBroken(address.port, str(error))
        case UpstreamLost():
            return PortBroken(address.port, "ended the connection before it answered")
        case _:
            return BackendUnavailable(used.backend.name, "its sandboxes cannot be reached")
