import asyncio
from typing import cast

import httptools

from sandbox_http.headers import Header
from sandbox_http.messages import RequestHead, ResponseHead

# Bytes of a body buffered for a slow client before reading from the server stops.
_MOST_WAITING = 256 * 1024

# Limit for bytes outside bodies: headers and chunk framing.
_LARGEST_HEAD = 256 * 1024

# A read of 256 KiB is parsed at once unless it contains more pieces; then over several iterations of the event loop.
_PART = 4 * 1024
_MANY = 100


class UpstreamLost(Exception):
    """The connection ended before the response did."""


class UpstreamInvalid(Exception):
    """The server violated HTTP/1.1; the message says how."""


class Upstream(asyncio.Protocol):
    """A connection to a server in a sandbox; carries one exchange at a time."""

    def __init__(self) -> None:
        self.request_sent = False
        self._transport: asyncio.Transport
        self._request: RequestHead
        self._parser: httptools.HttpResponseParser
        self._headers: list[Header] = []
        self._response: ResponseHead | None = None
        self._body = bytearray()
        self._received = bytearray()
        self._parsing: asyncio.Handle | None = None
        self._pieces = 0
        self._unparsed = 0
        self._early = b""
        self._is_switched = False
        self._is_whole = True
        self._keeps_alive = False
        self._failure: Exception | None = None
        self._progress: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent on this connection."""
        return (
            self._is_whole
            and not self._body
            and not self._received
            and self._keeps_alive
            and self.request_sent
            and not self._transport.is_closing()
        )

    @property
    def failure(self) -> Exception | None:
        """The reason if this side closed it."""
        return self._failure

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def start(self, request: RequestHead) -> None:
        """Send the head of a request, its body follows with `write`."""
        self.request_sent = not request.has_body
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        # Servers written by hand end their lines with a bare LF.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._response = None
        self._unparsed = 0
        self._is_whole = self._keeps_alive = False
        if not self._transport.is_closing():
            self._transport.write(request.data)

    async def write(self, *data: bytes) -> None:
        """Send a part of the request's body, with backpressure."""
        if not self._transport.is_closing():
            self._transport.writelines(data)
            await self._writable.wait()

    async def response(self) -> ResponseHead:
        """Wait for the head of the response."""
        while self._response is None:
            await self._wait_progress()
        return self._response

    async def body(self) -> tuple[bytes, bool]:
        """Wait for more of the response's body; returns it, and whether it was the last part."""
        while not self._body and not self._is_whole:
            await self._wait_progress()
        body = bytes(self._body)
        self._body.clear()
        self._read_on()
        return body, self._is_whole

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection to another protocol; returns bytes that were received but not parsed."""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        self._transport.resume_reading()
        return self._early

    def abort(self, reason: Exception) -> None:
        """Close the connection; pending waits fail with the reason."""
        self._fail(reason)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._parsing is None:
            self._parse_on()

    def eof_received(self) -> None:
        if self._response is not None and self._response.ends_with_connection:
            self._is_whole = True
        self._fail(UpstreamLost())

    def connection_lost(self, _exc: Exception | None) -> None:
        self._received.clear()
        self._fail(UpstreamLost())
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_message_begin(self) -> None:
        self._pieces += 1
        if self._is_whole:
            raise UpstreamInvalid("sent more than one answer")
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pieces += 1
        if self._response is None:  # later ones are trailers
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        response = ResponseHead(self._parser.get_status_code(), self._headers)
        if response.is_interim:
            return
        self._require_forwardable(response)
        self._response = response
        if self._request.method == "HEAD":
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self._is_whole:
            raise UpstreamInvalid("sent a body where none is allowed")
        self._pieces += 1
        self._unparsed -= len(body)
        self._body += body

    def on_chunk_header(self) -> None:
        self._unparsed = 0

    def on_message_complete(self) -> None:
        if self._response is not None:
            self._keeps_alive = not self._response.is_switch and self._parser.should_keep_alive()
            self._is_whole = True

    def _require_forwardable(self, response: ResponseHead) -> None:
        is_upgrade = self._request.upgrade is not None and self._parser.should_upgrade()
        if response.is_switch and not is_upgrade:
            raise UpstreamInvalid("switched protocols without a request")
        if not response.is_sound:
            raise UpstreamInvalid("answered with an invalid status or header")
        if response.coding not in {None, b"chunked"}:
            raise UpstreamInvalid("used a transfer coding other than chunked")

    def _parse_on(self) -> None:
        """Parse received bytes, a limited number of pieces per iteration of the event loop."""
        self._parsing = None
        self._pieces = 0
        while self._received and self._pieces < _MANY and len(self._body) <= _MOST_WAITING:
            part = bytes(self._received[:_PART])
            del self._received[:_PART]
            self._parse(part)
            if self._transport.is_closing():
                self._received.clear()
        self._read_on()
        self._tell_progress()

    def _read_on(self) -> None:
        """Continue parsing and receiving once the buffered body was read."""
        if self._is_switched or self._transport.is_closing():
            return
        if len(self._body) > _MOST_WAITING or self._received:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if self._received and self._parsing is None and len(self._body) <= _MOST_WAITING:
            self._parsing = asyncio.get_running_loop().call_soon(self._parse_on)

    def _parse(self, part: bytes) -> None:
        if self._is_whole:
            self.abort(UpstreamInvalid("sent data without a request"))
            return
        self._unparsed += len(part)
        try:
            self._parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            self._early = part[upgrade.args[0] :] + bytes(self._received)
            self._received.clear()
            self._is_switched = True
            self._transport.pause_reading()
        except httptools.HttpParserError as error:
            self._keeps_alive = False
            if not self._is_whole:
                self.abort(_reason_of(error))
        if self._unparsed > _LARGEST_HEAD:
            self.abort(UpstreamInvalid("answered with a head that is too large"))

    def _fail(self, reason: Exception) -> None:
        self._failure = self._failure or reason
        self._tell_progress()

    async def _wait_progress(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._progress = asyncio.get_running_loop().create_future()
        await self._progress

    def _tell_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)


def _reason_of(error: httptools.HttpParserError) -> UpstreamInvalid:
    reason = error.__context__
    return (
        reason
        if isinstance(reason, UpstreamInvalid)
        else UpstreamInvalid("answered with invalid HTTP/1.1")
    )
