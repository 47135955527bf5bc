import asyncio
import socket
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sandbox_http.tunnel import EXTENSION

MAX_HEAD = 64 * 1024
MAX_HEADERS = 256

IsForwarded = Callable[[list[tuple[bytes, bytes]], bytes], bool]
"""Decides by headers and target whether a request is forwarded to another server."""

RenderRefusal = Callable[[HTTPStatus, str], tuple[str, bytes]]
"""Returns content type and body of the answer to a request that is refused before the application."""

_MOST_EARLY = 64 * 1024
_TIME_FOR_HEAD = timedelta(seconds=30)
_TIME_TO_READ_REFUSAL = timedelta(seconds=5)
_LITTLE = 64 * 1024
# A read of 256 KiB is parsed at once unless it contains more pieces. A body of known length is parsed as one piece:
# uvicorn copies the whole body for each piece.
_PART = 4 * 1024
_MANY = 100


class _HeadTooLarge(Exception):
    pass


class _Flow(FlowControl):
    """Keeps reading paused while received bytes are not parsed yet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def release(self, *, resume: bool = True) -> None:
        was_held, self._is_held = self._is_held, False
        if was_held and resume:
            self.resume_reading()


def _as_text(_status: HTTPStatus, message: str) -> tuple[str, bytes]:
    return "text/plain; charset=utf-8", message.encode()


def always(_headers: list[tuple[bytes, bytes]], _target: bytes) -> bool:
    return True


def never(_headers: list[tuple[bytes, bytes]], _target: bytes) -> bool:
    return False


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits on buffered bytes and on time.

    The parser buffers a whole head before authentication, so its size, its number of headers and its time are limited.
    Many small requests or chunks are parsed over several iterations of the event loop, and pipelined requests one after
    the other. The scope's extensions give the application access to the connection: a forwarded request can become a
    tunnel, and a response can be cut off.
    """

    alpn_protocols = ("http/1.1",)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        is_forwarded: IsForwarded = never,
        render_refusal: RenderRefusal = _as_text,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._is_forwarded = is_forwarded
        self._render_refusal = render_refusal
        self._forwarded = False
        self._refused = False
        self._running: RequestResponseCycle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_size = 0
        self._undelivered = 0  # bytes fed to the parser since its last callback
        self._early: bytearray | None = None
        self._unparsed = bytearray()
        self._parsing: asyncio.Handle | None = None
        self._pieces = 0
        self._expected = 0  # remaining bytes of a body of known length

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self.transport.is_closing()

    def cut(self) -> None:
        """Close the connection in the middle of a response, so that the client sees the response as incomplete."""
        self._end_running()
        self.transport.close()

    def abort(self) -> None:
        """Close the connection at once; unsent data is lost."""
        self.transport.abort()

    def keep_little_unsent(self) -> None:
        """Let the kernel buffer little for a slow client (by default up to 4 MiB), so that a stall shows sooner."""
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            connected: socket.socket = self.transport.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, option, _LITTLE)

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection to another protocol; returns bytes that were received but not parsed."""
        assert self._running is not None
        self._running.response_started = self._running.response_complete = True
        self.connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        return bytes(self._early or b"")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._end_running()
        self._unparsed.clear()
        if self._parsing is not None:
            self._parsing.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._early is not None:
            self._keep_early(data)
            return
        self._unparsed += data
        if self._parsing is None:
            self._parse_on()

    def on_message_begin(self) -> None:
        self._pieces += 1
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"connection": self}}
        self._head_size = self._undelivered = 0
        self._start_head_timer()

    def on_url(self, url: bytes) -> None:
        self._count_head(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pieces += 1
        self._count_head(name, value)
        if self._head_timer is not None:  # ignore trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        self._undelivered = 0
        self._expected = _length_of_body(self.headers)
        self._forwarded = self._is_forwarded(self.headers, self.url)
        super().on_headers_complete()
        if self.parser.should_upgrade() and not self._should_upgrade():
            self.cycle.keep_alive = False  # the parser cannot parse another request

    def on_chunk_header(self) -> None:
        self._undelivered = 0

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._undelivered -= len(body)
        self._expected = max(0, self._expected - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._undelivered = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed and self._parsing is None:
            self._parsing = self.loop.call_soon(self._parse_on)

    def _should_upgrade(self) -> bool:
        return not self._forwarded and super()._should_upgrade()

    def _parse_on(self) -> None:
        """Parse received bytes, a limited number of pieces per iteration of the event loop."""
        self._parsing = None
        self._pieces = 0
        while self._unparsed and self._pieces < _MANY and not self.pipeline:
            size = max(_PART, self._expected)
            part = bytes(self._unparsed[:size])
            del self._unparsed[:size]
            self._parse(part)
            if self._refused or self.transport.is_closing():
                self._unparsed.clear()
                return
            if self.transport.get_protocol() is not self:
                self._unparsed.clear()
            elif self._early is not None:
                self._keep_early(bytes(self._unparsed))
                self._unparsed.clear()
        if not self._unparsed:
            self.flow.release(resume=len(self._early or b"") <= _MOST_EARLY)
            return
        self.flow.hold()
        if not self.pipeline:
            self._parsing = self.loop.call_soon(self._parse_on)

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._undelivered += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLarge):
                self._refuse_large_head()
            else:
                self._refuse(HTTPStatus.BAD_REQUEST, "The request is not valid HTTP/1.1.")
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._early = bytearray()
                self._keep_early(data[upgrade.args[0] :])
        else:
            if self._undelivered > MAX_HEAD:
                self._refuse_large_head()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _end_running(self) -> None:
        # uvicorn notifies only the request received last, which may be queued behind the running one.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _keep_early(self, data: bytes) -> None:
        assert self._early is not None
        self._early += data
        if len(self._early) > _MOST_EARLY:
            self.flow.pause_reading()

    def _count_head(self, *parts: bytes) -> None:
        self._head_size += sum(len(part) + len(b": ") for part in parts)
        if self._head_size > MAX_HEAD or len(self.headers) >= MAX_HEADERS:
            raise _HeadTooLarge

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        delay = _TIME_FOR_HEAD.total_seconds()
        self._head_timer = self.loop.call_later(delay, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_large_head(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The request line and the headers have more than {MAX_HEAD} bytes, or there are more than {MAX_HEADERS} headers.",
        )

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._refused = True
        may_answer = self._may_answer()
        self._stop_head_timer()
        self.pipeline.clear()
        self._end_running()
        if not may_answer:
            self.transport.close()
            return
        content_type, body = self._render_refusal(status, message)
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
            % (status, status.phrase.encode(), content_type.encode(), len(body), body)
        )
        # A client that is still sending reads the response only if the connection stays open and accepts its data.
        self.flow.release()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_TIME_TO_READ_REFUSAL.total_seconds(), self.transport.close)

    def _may_answer(self) -> bool:
        """Return whether the client would match an answer to the request that is being received."""
        running = self._running
        if running is None or running.response_complete:
            return True
        is_received = running is self.cycle and self._head_timer is None
        return is_received and not running.response_started


def _length_of_body(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the length of a body without chunked coding; 0 if unknown."""
    by_name = dict(headers)
    length = by_name.get(b"content-length", b"")
    return int(length) if length.isdigit() and b"transfer-encoding" not in by_name else 0
