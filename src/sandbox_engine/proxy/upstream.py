import asyncio
from typing import cast

import httptools

from sandbox_engine.proxy.headers import Headers, Request, Response

# How much of a body may wait for a slow client before the application is made to wait.
_BODY_BUFFER = 256 * 1024

# How much an application may send that is not body: its heads, and what frames a chunk.
_MAX_HEAD = 256 * 1024

# A read of 256 KiB is parsed at once if it holds no more than so many pieces: else it takes several turns of the loop.
_PART = 4 * 1024
_MANY = 100


class UpstreamLost(Exception):
    """The application ended the connection before its answer was whole."""


class UpstreamInvalid(Exception):
    """What the application sent is not an answer in HTTP/1.1."""


class Upstream(asyncio.Protocol):
    """A connection to an application in a sandbox; carries one exchange at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.request_sent = False
        self._transport: asyncio.Transport
        self._request: Request
        self._parser: httptools.HttpResponseParser
        self._headers: Headers = []
        self._response: Response | None = None
        self._body = bytearray()
        self._received = bytearray()
        self._parsing: asyncio.Handle | None = None
        self._pieces = 0
        self._unparsed = 0
        self._early = b""
        self._is_switched = False
        self._whole = True
        self._keep_alive = False
        self._failure: Exception | None = None
        self._progress: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        return (
            self._whole
            and not self._body
            and not self._received
            and self._keep_alive
            and self.request_sent
            and not self._transport.is_closing()
        )

    def is_closing(self) -> bool:
        """Whether the connection is lost or about to be."""
        return self._transport.is_closing()

    def start(self, request: Request) -> None:
        """Send the head of a request; its body follows by `write`."""
        self.request_sent = not request.has_body
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        # Servers written by hand end their lines with a bare LF.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._response = None
        self._unparsed = 0
        self._whole = self._keep_alive = False
        if not self._transport.is_closing():
            self._transport.write(request.head)

    async def write(self, *data: bytes) -> None:
        """Send a part of the request's body as soon as the application takes it."""
        if not self._transport.is_closing():
            self._transport.writelines(data)
            await self._writable.wait()

    async def response(self) -> Response:
        """Wait for the head of the answer."""
        while self._response is None:
            await self._wait_progress()
        return self._response

    async def body(self) -> tuple[bytes, bool]:
        """Wait for more of the answer's body, and tell whether that was the last of it."""
        while not self._body and not self._whole:
            await self._wait_progress()
        body = bytes(self._body)
        self._body.clear()
        self._read_on()
        return body, self._whole

    def take_over(self, protocol: asyncio.Protocol) -> bytes:
        """Hand the connection to another protocol; returns what it had already received."""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        self._transport.resume_reading()
        return self._early

    def abort(self, reason: Exception) -> None:
        """Cut the connection; who waits for the application is told the reason."""
        self._fail(reason)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._parsing is None:
            self._parse_on()

    def eof_received(self) -> None:
        if self._response is not None and self._response.ends_with_connection:
            self._whole = True
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
        if self._whole:
            raise UpstreamInvalid("more than one answer")
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pieces += 1
        if self._response is None:  # what comes later are trailers
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        response = Response(self._parser.get_status_code(), self._headers)
        if response.is_interim:
            return
        if response.is_switch:
            if not (self._request.upgrade and self._parser.should_upgrade()):
                raise UpstreamInvalid("an upgrade that nobody asked for")
        elif not response.is_final:
            raise UpstreamInvalid(f"status {response.status}")
        if response.coding not in {None, b"chunked"}:
            raise UpstreamInvalid("a transfer encoding other than chunked")
        self._response = response
        if self._request.method == "HEAD":
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self._whole:
            raise UpstreamInvalid("a body that must not be there")
        self._pieces += 1
        self._unparsed -= len(body)
        self._body += body

    def on_chunk_header(self) -> None:
        self._unparsed = 0

    def on_message_complete(self) -> None:
        if self._response is not None:
            self._keep_alive = self._response.is_final and self._parser.should_keep_alive()
            self._whole = True

    def _parse_on(self) -> None:
        """Parse what was received, in one turn of the loop no more than others can wait for."""
        self._parsing = None
        self._pieces = 0
        while self._received and self._pieces < _MANY and len(self._body) <= _BODY_BUFFER:
            part = bytes(self._received[:_PART])
            del self._received[:_PART]
            self._parse(part)
            if self._transport.is_closing():
                self._received.clear()
        self._read_on()
        self._tell_progress()

    def _read_on(self) -> None:
        """Have more parsed or received, once who reads the body has taken what there is."""
        if self._is_switched or self._transport.is_closing():
            return
        if len(self._body) > _BODY_BUFFER or self._received:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if self._received and self._parsing is None and len(self._body) <= _BODY_BUFFER:
            self._parsing = asyncio.get_running_loop().call_soon(self._parse_on)

    def _parse(self, part: bytes) -> None:
        if self._whole:
            self.abort(UpstreamInvalid("data that nobody asked for"))
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
            self._keep_alive = False
            if not self._whole:
                self.abort(UpstreamInvalid(str(error)))
        if self._unparsed > _MAX_HEAD:
            self.abort(UpstreamInvalid("the head of the answer is too large"))

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
