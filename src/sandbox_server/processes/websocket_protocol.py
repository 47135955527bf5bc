from datetime import timedelta

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_LAST_WORDS = timedelta(seconds=10)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, whose connection ends also where the other side takes nothing any more.

    A transport that is closed waits until all is sent, and so for ever for a peer that does not read.
    """

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._end_soon()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._end_soon()

    def _end_soon(self) -> None:
        self.loop.call_later(_LAST_WORDS.total_seconds(), self.transport.abort)
