from functools import partial

from sandbox_http.messages import RequestHead, is_repeatable
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    BackendUnavailable,
    PortBroken,
    PortNotOpen,
    PortSilent,
    SandboxError,
)
from sandbox_server.ports.access_watch import AccessWatch
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
    """Forwards HTTP requests and upgraded connections to servers in sandboxes.

    Credentials of this server are removed. Traffic keeps the sandbox awake.
    """

    def __init__(self, controller: SandboxController, authenticator: Authenticator) -> None:
        self._controller = controller
        self._activity = controller.activity
        self._resolver = SandboxResolver(controller)
        self._pool = ConnectionPool()
        self._access_watch = AccessWatch(authenticator)

    async def run(self) -> None:
        """Close connections of callers who lose access, until cancelled."""
        await self._access_watch.run()

    def end_streams(self) -> None:
        """Close responses without an end of their own; clients reconnect."""
        self._access_watch.close_endless()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def find(self, caller: Caller, sandbox_id: str) -> UsableSandbox:
        """Find a sandbox for requests that follow at once; resumes it if it is paused."""
        return await self._resolver.find(caller, sandbox_id, fresh=True)

    async def forward(self, proxy_request: ProxyRequest) -> None:
        """Answer with the response of the server in the sandbox. Raises only before the response has started."""
        is_retriable = is_repeatable(proxy_request.client.scope)
        fresh = not (is_retriable or proxy_request.is_found)
        failure = await self._attempt(proxy_request, fresh=fresh)
        if is_retriable and isinstance(
            failure, BackendUnavailable
        ):  # the sandbox may have just been paused
            failure = await self._attempt(proxy_request, fresh=True)
        if failure is not None:
            raise failure

    async def _attempt(self, proxy_request: ProxyRequest, *, fresh: bool) -> SandboxError | None:
        target, scope = proxy_request.target, proxy_request.client.scope
        if proxy_request.counts_as_activity:
            used = await self._resolver.find(proxy_request.caller, target.sandbox_id, fresh=fresh)
        else:
            used = await self._controller.look_into(proxy_request.caller, target.sandbox_id)
        address = proxy_request.address
        if address is None:
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
            note_activity=partial(self._activity.note, used.row)
            if proxy_request.counts_as_activity
            else _ignore,
            mark_endless=self._access_watch.mark_endless,
            sends_close_frame=proxy_request.sends_close_frame,
            relay=proxy_request.relay,
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
                # The provider may have closed the idle connection: retry requests that may run twice.
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
            with self._access_watch.watch(upstream, proxy_request.caller):
                await exchange.forward(request, upstream)
        finally:
            self._pool.release(upstream, address)


def _ignore() -> None:
    pass


def _explain(error: Exception, used: UsableSandbox, address: PortAddress) -> SandboxError:
    match error:
        case ProviderRefused(refusal=PortRefusal.CLOSED):
            return PortNotOpen(address.port)
        case ProviderRefused():
            return BackendUnavailable(used.backend.name, "the sandbox is not running")
        case ResponseTimeout():
            return PortSilent(address.port, seconds=RESPONSE_TIMEOUT.total_seconds())
        case UpstreamInvalid():
            return PortBroken(address.port, str(error))
        case UpstreamLost():
            return PortBroken(address.port, "closed the connection without a response")
        case _:
            return BackendUnavailable(used.backend.name, "its sandboxes are unreachable")
