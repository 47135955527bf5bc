import asyncio
import json
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sandbox_engine.proxy.tunnel import EXTENSION

_MAX_HEAD = 64 * 1024
_MAX_EARLY = 64 * 1024

_TIME_FOR_HEAD = timedelta(seconds=60)
_TIME_TO_READ_REFUSAL = timedelta(seconds=5)


class _HeadTooLarge(Exception):
    pass


class _UpgradeWithBody(Exception):
    pass


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds on what a client can make it hold.

    It lends its connection to the application through the scope's extensions, so that a request
    can become a tunnel and an answer can end visibly broken.
    """

    alpn_protocols = ("http/1.1",)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_size = 0
        self._undelivered = 0  # received since the parser last made something of it
        self._head_timer: asyncio.TimerHandle | None = None
        self._upgrading = False
        self._early = bytearray()
        self._refused = False
        self._running: RequestResponseCycle | None = None

    def is_closing(self) -> bool:
        """Whether the client is gone or about to be."""
        return self.transport.is_closing()

    def cut(self) -> None:
        """End the connection in the middle of an answer, so that it cannot pass for whole."""
        self._end_running()
        self.transport.close()

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection over; returns what was received and not yet used."""
        assert self._running is not None
        self._running.response_started = self._running.response_complete = True
        self.connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        return bytes(self._early)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._end_running()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._refused:
            return
        if self._upgrading:
            self._keep_early(data)
            return
        self._undelivered += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._keep_early(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_unreadable(error)
        else:
            if self._undelivered > _MAX_HEAD:
                self._refuse_large_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"connection": self}}
        self._head_size = self._undelivered = 0
        self._start_head_timer()

    def on_url(self, url: bytes) -> None:
        self._count_head(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(name, value)
        if self._head_timer is not None:  # a trailer must not pass for a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        self._undelivered = 0
        self._upgrading = self.parser.should_upgrade()
        if self._upgrading and self._has_body():
            raise _UpgradeWithBody
        super().on_headers_complete()
        if self._upgrading:  # the parser is of no use for a next request
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._undelivered -= len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._undelivered = 0

    def on_message_complete(self) -> None:
        self._undelivered = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _end_running(self) -> None:
        # uvicorn tells only the request received last, which may wait behind the one running.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _is_answering(self) -> bool:
        running = self._running
        return running is not None and running.response_started and not running.response_complete

    def _has_body(self) -> bool:
        framing = dict(self.headers)
        return b"transfer-encoding" in framing or framing.get(b"content-length", b"0") != b"0"

    def _count_head(self, *parts: bytes) -> None:
        self._head_size += sum(len(part) + len(b": ") for part in parts)
        if self._head_size > _MAX_HEAD:
            raise _HeadTooLarge

    def _keep_early(self, data: bytes) -> None:
        self._early += data
        if len(self._early) > _MAX_EARLY:
            self.flow.pause_reading()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            delay = _TIME_FOR_HEAD.total_seconds()
            self._head_timer = self.loop.call_later(delay, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_unreadable(self, error: httptools.HttpParserError) -> None:
        match error.__context__:
            case _HeadTooLarge():
                self._refuse_large_head()
            case _UpgradeWithBody():
                self._refuse(HTTPStatus.NOT_IMPLEMENTED, "An upgrade with a body is not supported")
            case _:
                self._refuse(HTTPStatus.BAD_REQUEST, "The request is not valid HTTP/1.1")

    def _refuse_large_head(self) -> None:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._refuse(status, f"The request's headers exceed {_MAX_HEAD} bytes")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._refused = True
        self._stop_head_timer()
        self.pipeline.clear()
        self._end_running()
        if self._is_answering():
            self.transport.close()  # what is said now would be read as a part of that answer
            return
        body = json.dumps({"code": status, "message": message}).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
            % (status, status.phrase.encode(), len(body), body)
        )
        # A client in the middle of sending reads the answer only if nobody hangs up on it.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_TIME_TO_READ_REFUSAL.total_seconds(), self.transport.close)
