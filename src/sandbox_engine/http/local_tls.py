"""HTTPS on the port that also serves HTTP: the first byte of a connection tells which it is."""

import asyncio
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from sandbox_engine.http.server import EngineHttp

# The type of a TLS record with a handshake. No HTTP method begins with it.
_HANDSHAKE = b"\x16"

Address = tuple[str, int]


class HttpOrTls(EngineHttp):
    """Serves HTTP, and passes connections that begin with TLS to the server of `tls_address`."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        tls_address: Address,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._tls_address = tls_address
        self._is_new = True

    def data_received(self, data: bytes) -> None:
        is_tls = self._is_new and data.startswith(_HANDSHAKE)
        self._is_new = False
        if not is_tls:
            super().data_received(data)
            return
        self._stop_head_timer()
        self.connections.discard(self)
        _Relay(self.transport, data).start(self._tls_address)


class _Relay:
    """Passes bytes between a client and the TLS server, with the backpressure of both."""

    def __init__(self, client: asyncio.Transport, first: bytes) -> None:
        self._client = client
        self._first = first
        self._connecting: asyncio.Task[None] | None = None

    def start(self, address: Address) -> None:
        self._client.pause_reading()
        end = _End()
        self._client.set_protocol(end)
        end.connection_made(self._client)
        self._connecting = asyncio.create_task(self._connect(end, address))
        end.connecting = self._connecting

    async def _connect(self, client: "_End", address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, server = await loop.create_connection(_End, *address)
        except OSError:
            self._client.abort()
            return
        client.other, server.other = server, client
        transport.write(self._first)
        if client.is_lost:
            transport.close()
        else:
            self._client.resume_reading()


class _End(asyncio.Protocol):
    def __init__(self) -> None:
        self.other: _End | None = None
        self.connecting: asyncio.Task[None] | None = None  # held, or it might be collected
        self.is_lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_lost = True
        if self.other is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()
