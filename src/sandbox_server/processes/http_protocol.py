import asyncio
import json
import socket
from datetime import timedelta
from http import HTTPStatus
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD = 64 * 1024
# An extension of ASGI, whose `connection` is the one that a request came by.
CONNECTION = "sandbox-server.connection"

_TIME_FOR_HEAD = timedelta(seconds=30)
_LITTLE = 64 * 1024


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


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds on the head of a request: how large it is, and how long it takes.

    Nobody has shown a key before its end, and the parser keeps all of it in memory.
    """

    _timer: asyncio.TimerHandle | None = None
    _received = 0
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._timer is not None:
            self._received += len(data)
            if self._received > MAX_HEAD:
                self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: {"connection": Connection(self.transport)}}
        self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._timer is not None:  # a trailer must not pass for a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_expecting()
        super().on_headers_complete()

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


def _too_large() -> bytes:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    problem = {
        "type": "urn:sandbox-server:problem:head-too-large",
        "title": "Request's head is too large",
        "status": status,
        "code": "head-too-large",
        "detail": f"The request line and the headers have more than {MAX_HEAD} bytes.",
    }
    body = json.dumps(problem).encode()
    return (
        b"HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
        % (status, status.phrase.encode(), len(body), body)
    )
