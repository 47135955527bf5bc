import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from sandbox_http.frames import Frames

# The ASGI extension whose `connection` is the ClientConnection that our HTTP server lends.
EXTENSION = "sandbox_http.client"

# The key in a scope for the status with which its connection switched protocols, of which ASGI knows nothing.
SWITCHED = "sandbox_http.switched"

# Makes the last bytes for a client.
Farewell = Callable[[], bytes]


def _nothing() -> None:
    pass


class Connection(Protocol):
    """A connection that another protocol can be put on."""

    def is_closing(self) -> bool:
        """Tell whether it is lost or about to be."""

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection over; gives what was received and not used yet."""


class ClientConnection(Connection, Protocol):
    """The connection that a request came on."""

    def cut(self) -> None:
        """End it in the middle of an answer, which so cannot pass for whole."""

    def abort(self) -> None:
        """Break it at once, whatever is still to be sent."""

    def keep_little_unsent(self) -> None:
        """Let the kernel buffer little for a slow client."""


class _End(asyncio.Protocol):
    """One end of a tunnel: what it receives the other one sends, no faster than that can."""

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
    """Send `head` to the client, then pass bytes both ways until both ends are gone.

    With a `farewell` they are a WebSocket's: only messages are noted, and a client whose server is gone without a word is
    told that.
    """
    if client.is_closing() or server.is_closing():
        raise ConnectionAbortedError
    outside = _End(note, None if farewell is None else _no_words)
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


def _no_words() -> bytes:
    return b""  # a server in a sandbox sees that its client is gone
