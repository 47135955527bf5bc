import asyncio
from collections import defaultdict
from datetime import timedelta

from sandbox_http.upstream import Upstream, UpstreamLost
from sandbox_server.providers.protocol.provider import PortAddress

_CONNECT_TIMEOUT = timedelta(seconds=10)

# Well below usual keep-alive timeouts, so that no connection is reused that is about to be closed.
_IDLE_TIMEOUT = timedelta(seconds=15)
_MAX_IDLE = 1000
_MAX_IDLE_PER_PORT = 16

_Server = tuple[str, int, str, int]


class ConnectionPool:
    """Connections to the servers in sandboxes.

    A connection is reused only for the same port of the same sandbox, even if several share an address: a misbehaving server
    affects only its own callers.
    """

    def __init__(self) -> None:
        self._open: set[Upstream] = set()
        self._idle: defaultdict[_Server, dict[Upstream, asyncio.TimerHandle]] = defaultdict(dict)
        self._idling = 0

    async def connect(self, address: PortAddress) -> Upstream:
        """Open a connection; raises OSError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_TIMEOUT.total_seconds()):
            _, upstream = await loop.create_connection(
                Upstream, address.host, address.host_port, ssl=address.tls
            )
        self._open.add(upstream)
        return upstream

    def take_idle(self, address: PortAddress) -> Upstream | None:
        """Take the most recently used idle connection, if any."""
        server = _server_of(address)
        idle = self._idle.get(server, {})
        while idle:
            upstream, expiry = idle.popitem()
            expiry.cancel()
            self._forget_idle(server)
            if upstream.is_reusable:
                return upstream
            self.drop(upstream)
        return None

    def release(self, upstream: Upstream, address: PortAddress) -> None:
        """Keep a reusable connection, and close any other."""
        server = _server_of(address)
        has_room = self._idling < _MAX_IDLE and len(self._idle.get(server, ())) < _MAX_IDLE_PER_PORT
        if not (upstream.is_reusable and has_room):
            self.drop(upstream)
            return
        loop = asyncio.get_running_loop()
        self._idle[server][upstream] = loop.call_later(
            _IDLE_TIMEOUT.total_seconds(), self._expire, upstream, server
        )
        self._idling += 1

    def close(self) -> None:
        """Close all connections, in use or idle."""
        for idle in self._idle.values():
            for expiry in idle.values():
                expiry.cancel()
        self._idle.clear()
        self._idling = 0
        while self._open:
            self._open.pop().abort(UpstreamLost())

    def _expire(self, upstream: Upstream, server: _Server) -> None:
        self._idle[server].pop(upstream)
        self._forget_idle(server)
        self.drop(upstream)

    def _forget_idle(self, server: _Server) -> None:
        self._idling -= 1
        if not self._idle[server]:
            del self._idle[server]

    def drop(self, upstream: Upstream) -> None:
        """Close a connection."""
        self._open.discard(upstream)
        upstream.abort(UpstreamLost())


def _server_of(address: PortAddress) -> _Server:
    return address.host, address.host_port, address.sandbox, address.port
