import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from sandbox_http.frames import Frames

# ASGI extension of our HTTP server; its `connection` is the ClientConnection of the request.
EXTENSION = "sandbox_http.client"

# Scope key for the status of a protocol switch, which ASGI does not report.
SWITCHED = "sandbox_http.switched"

# Builds the last bytes for a client: the close frame of a WebSocket.
Farewell = Callable[[], bytes]


def _nothing() -> None:
    pass


class Connection(Protocol):
    """A connection that another protocol can take over."""

    def is_closing(self) -> bool:
        """Return whether it is closed or closing."""

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection to another protocol; returns bytes that were received but not parsed."""


class ClientConnection(Connection, Protocol):
    """The connection of a request."""

    def cut(self) -> None:
        """Close it in the middle of a response, so that the client sees the response as incomplete."""

    def abort(self) -> None:
        """Close it at once; unsent data is lost."""

    def keep_little_unsent(self) -> None:
        """Let the kernel buffer little for a slow client."""


class _End(asyncio.Protocol):
    """One end of a tunnel: forwards to the other end, with its backpressure."""

    def __init__(self, note: Callable[[], None], farewell: Farewell | None) -> None:
        self.other: _End
        self.frames = None if farewell is None else Frames()
        self._farewell = farewell
        self.transport: asyncio.Transport
        self.closed = asyncio.Event()
        self._note = note

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.pass_on(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set()
        if self._farewell is not None and self.frames is not None and self.frames.may_end:
            self.other.send(self._farewell())
        self.other.transport.close()

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def pass_on(self, data: bytes) -> None:
        if self.frames is None or self.frames.take(data):
            self._note()
        self.other.send(data)

    def send(self, data: bytes) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data)


async def tunnel(
    client: Connection,
    server: Connection,
    *,
    head: bytes,
    note: Callable[[], None] = _nothing,
    farewell: Farewell | None = None,
) -> None:
    """Send `head` to the client, then forward bytes both ways until both ends are closed.

    With a `farewell` the bytes are a WebSocket's: `note` is called for messages only, and if the server's connection ends
    without a close frame, the client receives `farewell()`.
    """
    if client.is_closing() or server.is_closing():
        raise ConnectionAbortedError
    outside = _End(note, None if farewell is None else _no_farewell)
    inside = _End(note, farewell)
    outside.other, inside.other = inside, outside
    from_client = client.take_over(outside)
    from_server = server.take_over(inside)
    outside.send(head)
    inside.pass_on(from_server)
    outside.pass_on(from_client)
    try:
        await outside.closed.wait()
        await inside.closed.wait()
    finally:
        outside.transport.abort()
        inside.transport.abort()


def _no_farewell() -> bytes:
    return b""  # a server in a sandbox sees the closed connection
