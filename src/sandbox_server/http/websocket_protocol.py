import asyncio
from datetime import timedelta
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

LARGEST_MESSAGE = 2**20
"""Of what a client sends: as much is kept of it until all of it is there."""

_LAST_WORDS = timedelta(seconds=10)
# No more is parsed in one turn of the loop: 170 frames of the smallest size take 5 ms.
_PART = 1024
# Nobody types or moves a mouse faster.
_FRAMES_PER_S = 250.0
_BURST_S = 1.0


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, with bounds on what a client makes of it.

    Its connection ends also where the other side takes nothing any more: a transport that is closed waits until all is
    sent, and so for ever for a peer that does not read. What arrives is parsed a little at a time, no more of it
    than is worked off and answered: 256 KiB of the smallest frames would keep the loop from all others for seconds.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._unparsed = bytearray()
        self._parsing: asyncio.TimerHandle | None = None
        self._paid_until = 0.0

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if self.handshake_initiated:
            self._parse_on()
        else:
            self._parse(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed.clear()
        if self._parsing is not None:
            self._parsing.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        since = max(self._paid_until, self.loop.time() - _BURST_S)
        self._paid_until = since + len(self.conn.events) / _FRAMES_PER_S
        super().handle_events()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._parse_on()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._parse_on()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self._parse_on()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._end_soon()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._end_soon()

    def _parse_on(self) -> None:
        """Have what is left parsed once there is nothing before it that waits."""
        if not self._unparsed or self._parsing is not None:
            return
        self.transport.pause_reading()
        if self.writable.is_set() and (self.close_sent or self.queue.empty()):
            pause = max(0.0, self._paid_until - self.loop.time())
            self._parsing = self.loop.call_later(pause, self._parse, _PART)

    def _parse(self, most: int) -> None:
        self._parsing = None
        part = bytes(self._unparsed[:most])
        del self._unparsed[:most]
        if part and not self.transport.is_closing():
            super().data_received(part)
        if self._unparsed:
            self._parse_on()
        elif not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _end_soon(self) -> None:
        self.loop.call_later(_LAST_WORDS.total_seconds(), self.transport.abort)
