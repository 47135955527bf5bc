import asyncio
from collections import defaultdict
from datetime import timedelta

from sandbox_http.upstream import Upstream, UpstreamLost
from sandbox_server.providers.protocol.provider import PortAddress

_CONNECT_WITHIN = timedelta(seconds=10)

# Well below what servers keep idle connections for, so that none is taken which is about to be closed.
_IDLE_FOR = timedelta(seconds=15)
_MOST_IDLE = 1000
_MOST_IDLE_AT_ONE = 16

_Server = tuple[str, int, str, int]


class ConnectionPool:
    """Connections to the servers in sandboxes.

    One serves a single port of a single sandbox, though many may be at the same address: whatever a server does to
    its connections, only its own callers see it.
    """

    def __init__(self) -> None:
        self._open: set[Upstream] = set()
        self._idle: defaultdict[_Server, dict[Upstream, asyncio.TimerHandle]] = defaultdict(dict)
        self._idling = 0

    async def connect(self, address: PortAddress) -> Upstream:
        """Open a connection; an OSError says why there is none."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_WITHIN.total_seconds()):
            _, upstream = await loop.create_connection(
                Upstream, address.host, address.host_port, ssl=address.tls
            )
        self._open.add(upstream)
        return upstream

    def take_idle(self, address: PortAddress) -> Upstream | None:
        """Take the connection that was used last, if one is still open."""
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
        """Keep a connection for another request, or cut it where it cannot serve one."""
        server = _server_of(address)
        has_room = self._idling < _MOST_IDLE and len(self._idle.get(server, ())) < _MOST_IDLE_AT_ONE
        if not (upstream.is_reusable and has_room):
            self.drop(upstream)
            return
        loop = asyncio.get_running_loop()
        self._idle[server][upstream] = loop.call_later(
            _IDLE_FOR.total_seconds(), self._expire, upstream, server
        )
        self._idling += 1

    def close(self) -> None:
        """Cut every connection, in use or idle."""
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
        """Cut a connection."""
        self._open.discard(upstream)
        upstream.abort(UpstreamLost())


def _server_of(address: PortAddress) -> _Server:
    return address.host, address.host_port, address.sandbox, address.port
