import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta

from sandbox_http.upstream import Upstream, UpstreamLost

Dial = Callable[[int], Awaitable[socket.socket]]

# E2B also retries for a second: programs may still be starting.
_PAUSES_BETWEEN_DIALS = tuple(timedelta(milliseconds=ms) for ms in (100, 200, 300, 400))

_MAX_IDLE = 16
_IDLE_FOR = timedelta(seconds=30)


class ProxyClosed(Exception):
    """The sandbox was paused or killed during the exchange."""


class ConnectionPool:
    """The connections into one sandbox."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._open: dict[Upstream, int] = {}  # with the port
        self._idle: dict[Upstream, asyncio.TimerHandle] = {}
        self._kept: set[Upstream] = set()
        self._closings = 0

    async def connect(self, port: int) -> Upstream:
        """Open a connection; raises ConnectionRefusedError if nothing listens."""
        closings = self._closings
        connected = await self._dial_patiently(port)
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(Upstream, sock=connected)
        self._open[upstream] = port
        if closings != self._closings:
            self.release(upstream)
            raise ProxyClosed
        return upstream

    def take_idle(self, port: int) -> Upstream | None:
        """Take the most recently used idle connection to this port, if any."""
        for upstream in reversed([idle for idle in self._idle if self._open[idle] == port]):
            self._idle.pop(upstream).cancel()
            if upstream.is_reusable:
                return upstream
            self._drop(upstream)
        return None

    def release(self, upstream: Upstream) -> None:
        """Keep a connection for reuse, or close it if it cannot be reused."""
        if upstream.is_reusable and len(self._idle) < _MAX_IDLE:
            loop = asyncio.get_running_loop()
            self._idle[upstream] = loop.call_later(_IDLE_FOR.total_seconds(), self._drop, upstream)
        else:
            self._drop(upstream)

    def keep_open(self, upstream: Upstream) -> None:
        """Keep a connection that becomes a tunnel open while the sandbox is paused."""
        self._kept.add(upstream)

    async def close(self, *, keep_tunnels: bool = False) -> None:
        """Close all connections, active and idle; later requests open new ones."""
        self._closings += 1
        for expiry in self._idle.values():
            expiry.cancel()
        self._idle.clear()
        for upstream in list(self._open):
            if not (keep_tunnels and upstream in self._kept):
                del self._open[upstream]
                self._kept.discard(upstream)
                upstream.abort(ProxyClosed())
        await asyncio.sleep(0)  # a transport closes its socket one loop iteration after its abort

    def _drop(self, upstream: Upstream) -> None:
        self._idle.pop(upstream, None)
        self._open.pop(upstream, None)
        self._kept.discard(upstream)
        upstream.abort(UpstreamLost())

    async def _dial_patiently(self, port: int) -> socket.socket:
        for pause in _PAUSES_BETWEEN_DIALS:
            try:
                return await self._dial(port)
            except ConnectionRefusedError:
                await asyncio.sleep(pause.total_seconds())
        return await self._dial(port)
