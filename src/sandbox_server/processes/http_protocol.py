import asyncio
import socket
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sandbox_server.api.faults import HEAD_TOO_LARGE
from sandbox_server.api.problems import render_fault
from sandbox_server.domain.ids import new_id
from sandbox_server.passing.tunnel import EXTENSION

MAX_HEAD = 64 * 1024
MAX_HEADERS = 256
# An extension of ASGI, whose `connection` is the one that a request came by.
CONNECTION = "sandbox-server.connection"

_MOST_EARLY = 64 * 1024

IsPassedOn = Callable[[list[tuple[bytes, bytes]], bytes], bool]
"""Tells by headers and target of a request whether it is for somebody else's server."""

_TIME_FOR_HEAD = timedelta(seconds=30)
_LITTLE = 64 * 1024
# A read of 256 KiB is parsed at once if it holds no more than so many pieces. What is surely one piece is parsed as one:
# uvicorn puts pieces together by copying all of them for each.
_PART = 4 * 1024
_MANY = 100


class Connection:
    """What of a connection may be done by who answers a request that came by it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def abort(self) -> None:
        """Break it at once, whatever is still to be sent."""
        self._transport.abort()

    def keep_little_unsent(self) -> None:
        """Have the kernel take only a little that a slow client does not, else up to 4 MiB: what stalls is seen sooner."""
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            connected: socket.socket = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, option, _LITTLE)


class _Flow(FlowControl):
    """Lets nothing more be read while a part of what was has to wait."""

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


def never(_headers: list[tuple[bytes, bytes]], _target: bytes) -> bool:
    return False


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds on the head of a request: how large it is, and how long it takes.

    Nobody has shown a key before its end, and the parser keeps all of it in memory. Nor does anybody keep the loop
    from others: of many small requests or chunks a few are parsed in one turn, and no request before those that wait
    are answered. What `is_passed_on` may become another protocol that is none of ours: then the application is lent
    the connection.
    """

    _timer: asyncio.TimerHandle | None = None
    _received = 0
    _refused = False
    _passed_on = False
    _running: RequestResponseCycle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        is_passed_on: IsPassedOn = never,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._is_passed_on = is_passed_on
        self._early: bytearray | None = None
        self._unparsed = bytearray()
        self._parsing: asyncio.Handle | None = None
        self._pieces = 0
        self._expected = 0  # of a body that is one piece, however much of it is parsed at once

    def is_closing(self) -> bool:
        """Tell whether the client is gone or about to be."""
        return self.transport.is_closing()

    def cut(self) -> None:
        """End the connection in the middle of an answer, which so cannot pass for whole."""
        self._end_running()
        self.transport.close()

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection to another protocol; gives what was received and not used yet."""
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
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
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
        self.scope["extensions"] = {
            CONNECTION: {"connection": Connection(self.transport)},
            EXTENSION: {"connection": self},
        }
        self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pieces += 1
        if self._timer is not None:  # a trailer must not pass for a header
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._expected = max(0, self._expected - len(body))
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed and self._parsing is None:
            self._parsing = self.loop.call_soon(self._parse_on)

    def on_headers_complete(self) -> None:
        self._stop_expecting()
        self._expected = _length_of_body(self.headers)
        self._passed_on = self._is_passed_on(self.headers, self.url)
        super().on_headers_complete()
        if self.parser.should_upgrade() and not self._should_upgrade():
            self.cycle.keep_alive = False  # what follows is not parsed

    def _should_upgrade(self) -> bool:
        return not self._passed_on and super()._should_upgrade()

    def _parse_on(self) -> None:
        """Parse what was received, but no more than others can wait for."""
        self._parsing = None
        self._pieces = 0
        while self._unparsed and self._pieces < _MANY and not self.pipeline:
            size = max(_PART, self._expected)
            part = bytes(self._unparsed[:size])
            del self._unparsed[:size]
            self._parse(part)
            if self._timer is not None:
                self._bound_head(len(part))
            if self.transport.is_closing():
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

    def _bound_head(self, received: int) -> None:
        self._received += received
        if self._received > MAX_HEAD or len(self.headers) > MAX_HEADERS:
            self._refuse_head()

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._early = bytearray()
                self._keep_early(data[upgrade.args[0] :])

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _end_running(self) -> None:
        # uvicorn tells only the request that was received last, which may wait behind the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _keep_early(self, data: bytes) -> None:
        assert self._early is not None
        self._early += data
        if len(self._early) > _MOST_EARLY:
            self.flow.pause_reading()

    def _expect_head(self) -> None:
        self._stop_expecting()
        self._received = 0
        self._timer = self.loop.call_later(_TIME_FOR_HEAD.total_seconds(), self._give_up)

    def _stop_expecting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.transport.close()

    def _refuse_head(self) -> None:
        self._refused = True
        self._stop_expecting()
        before = cast("RequestResponseCycle | None", self.cycle)
        if before is None or before.response_complete:
            # Else it would be read as a part of the answer to the request before.
            self.transport.write(_too_large())
        self.transport.close()


def _length_of_body(headers: list[tuple[bytes, bytes]]) -> int:
    """Tell how much of a body follows that is in no chunks."""
    said = dict(headers)
    length = said.get(b"content-length", b"")
    return int(length) if length.isdigit() and b"transfer-encoding" not in said else 0


def _too_large() -> bytes:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    detail = f"The request line and the headers have more than {MAX_HEAD} bytes, or there are more than {MAX_HEADERS} headers."
    answer = render_fault(HEAD_TOO_LARGE, request_id=new_id(), detail=detail)
    body = bytes(answer.body)
    return (
        b"HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
        % (status, status.phrase.encode(), len(body), body)
    )
