import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from http import HTTPStatus

from sandbox_http.frames import close_frame
from sandbox_http.messages import RequestHead, ResponseHead
from sandbox_http.tunnel import SWITCHED, tunnel
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.domain.errors import Unauthenticated
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.client import Client, ClientGone
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.response import headers_for

RESPONSE_TIMEOUT = timedelta(minutes=10)
"""How long a server may think about a request that it has got all of."""

_LARGEST_REFUSAL = 64 * 1024

FindRefusal = Callable[[PortAddress, int, bytes], PortRefusal | None]


class ResponseTimeout(Exception):
    """The server did not answer in time."""


class ProviderRefused(Exception):
    """The provider answered, and not the server in the sandbox."""

    def __init__(self, refusal: PortRefusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class Exchange:
    """One request of a client's and its answer, both passed on as they come.

    It raises only while the client has seen nothing of an answer.
    """

    def __init__(
        self,
        client: Client,
        origin: PublicOrigin,
        address: PortAddress,
        *,
        find_refusal: FindRefusal,
        note: Callable[[], None],
        expect_no_end: Callable[[Upstream], None],
        sends_close_frame: bool = False,
    ) -> None:
        self._client = client
        self._origin = origin
        self._address = address
        self._find_refusal = find_refusal
        self._note = note
        self._expect_no_end = expect_no_end
        self._sends_close_frame = sends_close_frame

    async def forward(self, request: RequestHead, upstream: Upstream) -> None:
        upstream.start(request)
        upload = asyncio.create_task(self._upload(upstream, is_chunked=request.is_chunked))
        try:
            answer = await _wait_for_response(upstream)
            if answer.has_no_end:
                self._expect_no_end(upstream)
            if answer.is_switch:
                upload.cancel()
                self._client.scope[SWITCHED] = answer.status
                head = answer.switch(headers_for(answer, self._origin, self._address))
                await tunnel(
                    self._client.connection,
                    upstream,
                    head=head,
                    note=self._note,
                    farewell=partial(_close_frame, upstream) if self._sends_close_frame else None,
                )
            else:
                await self._download(upstream, answer)
        finally:
            upload.cancel()

    async def _upload(self, upstream: Upstream, *, is_chunked: bool) -> None:
        """Pass the request's body on, then look out for the client's leaving."""
        while True:
            message = await self._client.receive()
            if message["type"] == "http.disconnect":
                upstream.abort(ClientGone())
                return
            if body := message.get("body", b""):
                self._note()
                data = (b"%x\r\n" % len(body), body, b"\r\n") if is_chunked else (body,)
                await upstream.write(*data)
            if not message.get("more_body", False):
                if is_chunked:
                    await upstream.write(b"0\r\n\r\n")
                upstream.request_sent = True

    async def _download(self, upstream: Upstream, answer: ResponseHead) -> None:
        ahead, last = b"", False
        if answer.status == HTTPStatus.BAD_GATEWAY:
            ahead, last = await self._read_refusal(upstream, answer.status)
        headers = headers_for(answer, self._origin, self._address)
        await self._client.send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        try:
            await self._send(ahead, last=last)
            while not last:
                body, last = await upstream.body()
                self._note()
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
        ahead, last = b"", False
        while not last and len(ahead) < _LARGEST_REFUSAL:
            body, last = await upstream.body()
            ahead += body
        refusal = self._find_refusal(self._address, status, ahead)
        if refusal is not None:
            raise ProviderRefused(refusal)
        return ahead, last


def _close_frame(upstream: Upstream) -> bytes:
    """Tell a client why its WebSocket ends, by the codes that this server has for all of them."""
    match upstream.failure:
        case None:
            return close_frame(1011, "The sandbox ended the connection: connect again.")
        case Unauthenticated():
            return close_frame(4401, "The key or ticket does not hold any more.")
        case _:
            return close_frame(1001, "The server stops: connect again.")


async def _wait_for_response(upstream: Upstream) -> ResponseHead:
    while True:
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT.total_seconds()):
                return await upstream.response()
        except TimeoutError:
            if upstream.request_sent:
                break
    raise ResponseTimeout
