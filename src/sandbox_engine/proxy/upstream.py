import asyncio
from typing import cast

import httptools

from sandbox_engine.proxy.headers import Headers, Request, Response

# How much of a body may wait for a slow client before the application is made to wait.
_BODY_BUFFER = 256 * 1024

# How much an application may send that is not body: its heads, and what frames a chunk.
_MAX_HEAD = 256 * 1024


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
        self._body: list[bytes] = []
        self._buffered = 0
        self._unparsed = 0
        self._early = b""
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
        body = b"".join(self._body)
        self._body.clear()
        if self._buffered > _BODY_BUFFER:
            self._transport.resume_reading()
        self._buffered = 0
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
        if self._whole:
            self.abort(UpstreamInvalid("data that nobody asked for"))
            return
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._early = data[upgrade.args[0] :]
            self._transport.pause_reading()
        except httptools.HttpParserError as error:
            self._keep_alive = False
            if not self._whole:
                self.abort(UpstreamInvalid(str(error)))
        if self._unparsed > _MAX_HEAD:
            self.abort(UpstreamInvalid("the head of the answer is too large"))
        self._tell_progress()

    def eof_received(self) -> None:
        if self._response is not None and self._response.ends_with_connection:
            self._whole = True
        self._fail(UpstreamLost())

    def connection_lost(self, _exc: Exception | None) -> None:
        self._fail(UpstreamLost())
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_message_begin(self) -> None:
        if self._whole:
            raise UpstreamInvalid("more than one answer")
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
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
        self._unparsed -= len(body)
        self._body.append(body)
        self._buffered += len(body)
        if self._buffered > _BODY_BUFFER:
            self._transport.pause_reading()

    def on_chunk_header(self) -> None:
        self._unparsed = 0

    def on_message_complete(self) -> None:
        if self._response is not None:
            self._keep_alive = self._response.is_final and self._parser.should_keep_alive()
            self._whole = True

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
