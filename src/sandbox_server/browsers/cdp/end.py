import asyncio
from collections.abc import Callable
from typing import cast

from sandbox_server.browsers.cdp.frames import FrameError, FrameReader, Piece

LARGEST_COLLECTED = 256 * 1024
"""Messages above this size stream through: they are neither inspected nor recorded."""


class End(asyncio.Protocol):
    """One connection of a relay, with backpressure to the other."""

    def __init__(
        self,
        receive: Callable[[Piece], None],
        on_closed: Callable[[], None],
        on_violation: Callable[[], None],
    ) -> None:
        self.other: End
        self.transport: asyncio.Transport
        self.reader = FrameReader(limit=LARGEST_COLLECTED)
        self.closed = asyncio.Event()
        self.has_closed = False
        """Whether it sent a close frame."""
        self.heard = True
        self._receive = receive
        self._on_closed = on_closed
        self._on_violation = on_violation
        self._stops = 0
        self.is_valid = True

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is read, because the other end is slower or the browser is resumed."""
        return self._stops > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if not self.is_valid:
            return
        if (message := self.reader.find_whole(data)) is not None:
            self._receive(message)
            return
        try:
            for piece in self.reader.feed(data):
                self._receive(piece)
        except FrameError:
            self.is_valid = False
            self._on_violation()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set()
        self._on_closed()

    def pause_writing(self) -> None:
        self.other.stop_reading()

    def resume_writing(self) -> None:
        self.other.read_on()

    def stop_reading(self) -> None:
        self._stops += 1
        self.transport.pause_reading()

    def read_on(self) -> None:
        self._stops = max(0, self._stops - 1)
        if not self._stops and not self.transport.is_closing():
            self.transport.resume_reading()

    def read_all(self) -> None:
        """Read until the connection ends, whatever the other end does."""
        self._stops = 0
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def send(self, data: bytes) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data)
