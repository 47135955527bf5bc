import asyncio
from datetime import timedelta
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

LARGEST_MESSAGE = 2**20
"""Maximum size of a client's message, which is buffered until it is complete."""

_CLOSE_TIMEOUT = timedelta(seconds=10)
# Bytes parsed per turn of the event loop: 170 frames of the smallest size take 5 ms.
_CHUNK = 1024
# More than typing or mouse movements produce.
_FRAMES_PER_S = 250.0
_BURST_S = 1.0


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with bounds against misbehaving clients.

    A connection is aborted some seconds after closing: a closed transport waits until everything is sent, for ever if
    the peer does not read. Input is parsed in small chunks, and only after earlier messages are processed:
    256 KiB of the smallest frames would block the event loop for seconds.
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
        self._budget_used_until = 0.0

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if self.handshake_initiated:
            self._schedule_parsing()
        else:
            self._parse(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed.clear()
        if self._parsing is not None:
            self._parsing.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        since = max(self._budget_used_until, self.loop.time() - _BURST_S)
        self._budget_used_until = since + len(self.conn.events) / _FRAMES_PER_S
        super().handle_events()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._schedule_parsing()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._schedule_parsing()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self._schedule_parsing()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._abort_later()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._abort_later()

    def _schedule_parsing(self) -> None:
        """Schedule parsing of the remaining input once all earlier messages are processed."""
        if not self._unparsed or self._parsing is not None:
            return
        self.transport.pause_reading()
        if self.writable.is_set() and (self.close_sent or self.queue.empty()):
            pause = max(0.0, self._budget_used_until - self.loop.time())
            self._parsing = self.loop.call_later(pause, self._parse, _CHUNK)

    def _parse(self, most: int) -> None:
        self._parsing = None
        part = bytes(self._unparsed[:most])
        del self._unparsed[:most]
        if part and not self.transport.is_closing():
            super().data_received(part)
        if self._unparsed:
            self._schedule_parsing()
        elif not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _abort_later(self) -> None:
        self.loop.call_later(_CLOSE_TIMEOUT.total_seconds(), self.transport.abort)
