import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Protocol

from sandbox_http.frames import close_frame
from sandbox_http.messages import RequestHead, ResponseHead
from sandbox_http.tunnel import SWITCHED, Connection, tunnel
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.domain.errors import Unauthenticated
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.client import Client, ClientGone
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.response import headers_for

RESPONSE_TIMEOUT = timedelta(minutes=10)
"""Time for a server to respond after it has received the whole request."""

_MAX_REFUSAL = 64 * 1024

FindRefusal = Callable[[PortAddress, int, bytes], PortRefusal | None]


class Relay(Protocol):
    """Forwards the messages of an upgraded connection."""

    async def __call__(self, client: Connection, server: Upstream, *, head: bytes) -> None:
        """Send `head` to the client, and forward until either side ends."""


class ResponseTimeout(Exception):
    """The server did not respond in time."""


class ProviderRefused(Exception):
    """The provider answered instead of the server in the sandbox."""

    def __init__(self, refusal: PortRefusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class Exchange:
    """One request and its response, both streamed.

    Raises only while the client has received nothing of the response.
    """

    def __init__(
        self,
        client: Client,
        origin: PublicOrigin,
        address: PortAddress,
        *,
        find_refusal: FindRefusal,
        note_activity: Callable[[], None],
        mark_endless: Callable[[Upstream], None],
        sends_close_frame: bool = False,
        relay: Relay | None = None,
    ) -> None:
        self._client = client
        self._origin = origin
        self._address = address
        self._find_refusal = find_refusal
        self._note_activity = note_activity
        self._mark_endless = mark_endless
        self._sends_close_frame = sends_close_frame
        self._relay = relay

    async def forward(self, request: RequestHead, upstream: Upstream) -> None:
        upstream.start(request)
        upload = asyncio.create_task(self._upload(upstream, is_chunked=request.is_chunked))
        try:
            answer = await _wait_for_response(upstream)
            if answer.has_no_end:
                self._mark_endless(upstream)
            if answer.is_switch:
                upload.cancel()
                self._client.scope[SWITCHED] = answer.status
                head = answer.switch(headers_for(answer, self._origin, self._address))
                if self._relay is not None:
                    await self._relay(self._client.connection, upstream, head=head)
                    return
                await tunnel(
                    self._client.connection,
                    upstream,
                    head=head,
                    note=self._note_activity,
                    farewell=partial(_close_frame, upstream) if self._sends_close_frame else None,
                )
            else:
                await self._download(upstream, answer)
        finally:
            upload.cancel()

    async def _upload(self, upstream: Upstream, *, is_chunked: bool) -> None:
        """Forward the request's body, then wait for the client to disconnect."""
        while True:
            message = await self._client.receive()
            if message["type"] == "http.disconnect":
                upstream.abort(ClientGone())
                return
            if body := message.get("body", b""):
                self._note_activity()
                data = (b"%x\r\n" % len(body), body, b"\r\n") if is_chunked else (body,)
                await upstream.write(*data)
            if not message.get("more_body", False):
                if is_chunked:
                    await upstream.write(b"0\r\n\r\n")
                upstream.request_sent = True

    async def _download(self, upstream: Upstream, answer: ResponseHead) -> None:
        prefix, last = b"", False
        if answer.status == HTTPStatus.BAD_GATEWAY:
            prefix, last = await self._read_refusal(upstream, answer.status)
        headers = headers_for(answer, self._origin, self._address)
        await self._client.send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        try:
            await self._send(prefix, last=last)
            while not last:
                body, last = await upstream.body()
                self._note_activity()
                await self._send(body, last=last)
        except ClientGone:
            pass
        except (UpstreamLost, UpstreamInvalid, Unauthenticated):
            self._client.connection.cut()

    async def _send(self, body: bytes, *, last: bool) -> None:
        if body or last:
            await self._client.send(
                {"type": "http.response.body", "body": body, "more_body": not last}
            )

    async def _read_refusal(self, upstream: Upstream, status: int) -> tuple[bytes, bool]:
        prefix, last = b"", False
        while not last and len(prefix) < _MAX_REFUSAL:
            body, last = await upstream.body()
            prefix += body
        refusal = self._find_refusal(self._address, status, prefix)
        if refusal is not None:
            raise ProviderRefused(refusal)
        return prefix, last


def _close_frame(upstream: Upstream) -> bytes:
    """Build the WebSocket close frame with the reason, in this server's close codes."""
    match upstream.failure:
        case None:
            return close_frame(1011, "The sandbox closed the connection: reconnect.")
        case Unauthenticated():
            return close_frame(4401, "The key or ticket is no longer valid.")
        case _:
            return close_frame(1001, "The server is stopping: reconnect.")


async def _wait_for_response(upstream: Upstream) -> ResponseHead:
    while True:
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT.total_seconds()):
                return await upstream.response()
        except TimeoutError:
            if upstream.request_sent:
                break
    raise ResponseTimeout
