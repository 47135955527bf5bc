import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sandbox_http.upstream import Upstream, UpstreamLost
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.db.session import OUTAGES
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.errors import Unauthenticated

log = logging.getLogger(__name__)

CHECK_INTERVAL = timedelta(seconds=2)


class AccessWatch:
    """Closes proxied connections whose caller has lost access. A WebSocket may be open for days."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._connections: dict[Upstream, Caller] = {}
        self._endless: set[Upstream] = set()
        self._has_connections = asyncio.Event()

    @contextmanager
    def watch(self, upstream: Upstream, caller: Caller) -> Iterator[None]:
        """Watch the connection of a caller until the block ends."""
        self._connections[upstream] = caller
        self._has_connections.set()
        try:
            yield
        finally:
            del self._connections[upstream]
            self._endless.discard(upstream)

    def mark_endless(self, upstream: Upstream) -> None:
        """Mark a connection whose response has no end of its own."""
        self._endless.add(upstream)

    def close_endless(self) -> None:
        """Close connections whose response has no end of its own."""
        for upstream in list(self._endless):
            upstream.abort(UpstreamLost())

    async def run(self) -> None:
        """Check the access of callers periodically, until cancelled."""
        while True:
            await self._has_connections.wait()
            await asyncio.sleep(CHECK_INTERVAL.total_seconds())
            if not self._connections:
                self._has_connections.clear()
            for caller in {each.secret_hash: each for each in self._connections.values()}.values():
                with suppress(*OUTAGES):
                    await self._look(caller)

    async def _look(self, caller: Caller) -> None:
        if not await self._has_access(caller):
            revoked = [
                upstream
                for upstream, each in self._connections.items()
                if each.secret_hash == caller.secret_hash
            ]
            for upstream in revoked:
                upstream.abort(Unauthenticated())
            log.info(
                "proxied connections closed key_id=%s connections=%d", caller.key_id, len(revoked)
            )

    async def _has_access(self, caller: Caller) -> bool:
        try:
            current = await self._authenticator.recheck(caller)
        except Unauthenticated:
            return False
        return current.may(Scope.SANDBOXES) or not caller.may(Scope.SANDBOXES)
