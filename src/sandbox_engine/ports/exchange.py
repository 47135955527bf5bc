"""One request to a server, and its response or its tunnel."""

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_engine.ports.connection_pool import ProxyClosed
from sandbox_http.messages import RequestHead, ResponseHead
from sandbox_http.tunnel import EXTENSION, ClientConnection, tunnel
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost


class ClientGone(Exception):
    """The client has disconnected."""


@dataclass(frozen=True)
class Client:
    scope: Scope
    receive: Receive
    send: Send

    @property
    def connection(self) -> ClientConnection:
        connection: ClientConnection = self.scope["extensions"][EXTENSION]["connection"]
        return connection

    async def answer(self, page: ASGIApp) -> None:
        await page(self.scope, self.receive, self.send)


async def exchange(client: Client, request: RequestHead, upstream: Upstream) -> None:
    """Send a request and the response; raises only before the client has seen any of it."""
    upstream.start(request)
    upload = asyncio.create_task(_upload(client, upstream, chunked=request.is_chunked))
    try:
        response = await upstream.response()
        if response.is_switch:
            upload.cancel()
            head = response.switch(response.forwarded_headers)
            await tunnel(client.connection, upstream, head=head)
        else:
            await _download(client, upstream, response)
    finally:
        upload.cancel()


async def _upload(client: Client, upstream: Upstream, *, chunked: bool) -> None:
    """Forward the request body, then watch for a disconnect."""
    while True:
        message = await client.receive()
        if message["type"] == "http.disconnect":
            upstream.abort(ClientGone())
            return
        body = message.get("body", b"")
        if body:
            await upstream.write(*((b"%x\r\n" % len(body), body, b"\r\n") if chunked else (body,)))
        if not message.get("more_body", False):
            if chunked:
                await upstream.write(b"0\r\n\r\n")
            upstream.request_sent = True


async def _download(client: Client, upstream: Upstream, response: ResponseHead) -> None:
    headers = response.forwarded_headers
    await client.send(
        {"type": "http.response.start", "status": response.status, "headers": headers}
    )
    last = False
    try:
        while not last:
            body, last = await upstream.body()
            await client.send({"type": "http.response.body", "body": body, "more_body": not last})
    except ClientGone:
        pass
    except (UpstreamLost, UpstreamInvalid, ProxyClosed):
        client.connection.cut()
