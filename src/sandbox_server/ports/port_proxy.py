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
from sandbox_server.ports.resolver import Reach
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.client import ClientGone
from sandbox_server.proxy.exchange import PATIENCE, Exchange, Refused, Silent
from sandbox_server.proxy.pool import Pool
from sandbox_server.proxy.proxy_request import Passage
from sandbox_server.proxy.request import read_request
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController

_FAILURES = (OSError, Refused, Silent, UpstreamInvalid, UpstreamLost)


class Passing:
    """Passes HTTP, and what HTTP is upgraded to, on to the servers in sandboxes.

    What authenticated the caller stays here. A sandbox is awake for as long as bytes move.
    """

    def __init__(self, controller: SandboxController, authenticator: Authenticator) -> None:
        self._controller = controller
        self._awake = controller.activity
        self._reach = Reach(controller)
        self._pool = Pool()
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

    async def pass_on(self, passage: Passage) -> None:
        """Answer a request with what the server in the sandbox answers; refuse only before any of that was told."""
        to_idempotency = is_repeatable(passage.client.scope)
        failure = await self._attempt(passage, anew=not to_idempotency)
        if to_idempotency and isinstance(
            failure, BackendUnavailable
        ):  # it may have been paused just now
            failure = await self._attempt(passage, anew=True)
        if failure is not None:
            raise failure

    async def _attempt(self, passage: Passage, *, anew: bool) -> SandboxError | None:
        destination, scope = passage.destination, passage.client.scope
        if passage.is_use:
            used = await self._reach.find(passage.caller, destination.sandbox_id, anew=anew)
        else:
            used = await self._controller.look_into(passage.caller, destination.sandbox_id)
        address = used.backend.port_address(used.access, destination.port)
        request = read_request(
            scope, address, passage.outside, path=passage.path, added=passage.added
        )
        exchange = Exchange(
            passage.client,
            passage.outside,
            address,
            find_refusal=used.backend.find_refusal,
            note=partial(self._awake.note, used.row) if passage.is_use else _nothing,
            expect_no_end=self._watch.expect_no_end,
            tells_end=passage.tells_end,
        )
        try:
            await self._forward(passage, exchange, request, address)
        except ClientGone:
            return None
        except _FAILURES as error:
            return _explain(error, used, address)
        return None

    async def _forward(
        self, passage: Passage, exchange: Exchange, request: RequestHead, address: PortAddress
    ) -> None:
        idle = None if request.upgrade else self._pool.take_idle(address)
        if idle is not None:
            try:
                await self._carry(passage, exchange, request, address, idle)
            except UpstreamLost:
                # The provider may have closed a connection that it left open; what may run twice is sent again.
                if not request.is_repeatable:
                    raise
            else:
                return
        upstream = await self._pool.connect(address)
        await self._carry(passage, exchange, request, address, upstream)

    async def _carry(
        self,
        passage: Passage,
        exchange: Exchange,
        request: RequestHead,
        address: PortAddress,
        upstream: Upstream,
    ) -> None:
        try:
            with self._watch.over(upstream, passage.caller):
                await exchange.carry(request, upstream)
        finally:
            self._pool.release(upstream, address)


def _nothing() -> None:
    pass


def _explain(error: Exception, used: UsableSandbox, address: PortAddress) -> SandboxError:
    match error:
        case Refused(refusal=PortRefusal.CLOSED):
            return PortNotOpen(address.port)
        case Refused():
            return BackendUnavailable(used.backend.name, "the sandbox does not run any more")
        case Silent():
            return PortSilent(address.port, seconds=PATIENCE.total_seconds())
        case UpstreamInvalid():
            return PortBroken(address.port, str(error))
        case UpstreamLost():
            return PortBroken(address.port, "ended the connection before it answered")
        case _:
            return BackendUnavailable(used.backend.name, "its sandboxes cannot be reached")
