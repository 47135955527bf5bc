import asyncio
from typing import Protocol, cast

# The key in an HTTP scope's `extensions` under which the server lends its connection:
# {"connection": ClientConnection}.
EXTENSION = "sandbox_engine.client"


class Connection(Protocol):
    """A connection that another protocol can be put on."""

    def is_closing(self) -> bool:
        """Whether the connection is lost or about to be."""

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection over; returns what was received and not yet used."""


class ClientConnection(Connection, Protocol):
    """The connection a request came on."""

    def cut(self) -> None:
        """End the connection in the middle of an answer, so that it cannot pass for whole."""


class _End(asyncio.Protocol):
    """One side of a tunnel; what it receives its peer sends, no faster than the peer can."""

    def __init__(self) -> None:
        self.peer: _End
        self.transport: asyncio.Transport
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.peer.send(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set()
        self.peer.transport.close()

    def pause_writing(self) -> None:
        self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.peer.transport.resume_reading()

    def send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


async def tunnel(client: Connection, application: Connection, *, head: bytes) -> None:
    """Send `head` to the client, then pass bytes both ways until both sides are gone."""
    if client.is_closing() or application.is_closing():
        raise ConnectionAbortedError
    outside, inside = _End(), _End()
    outside.peer, inside.peer = inside, outside
    from_client = client.take_over(outside)
    from_application = application.take_over(inside)
    outside.send(head + from_application)
    inside.send(from_client)
    try:
        await outside.closed.wait()
        await inside.closed.wait()
    finally:
        outside.transport.abort()
        inside.transport.abort()
