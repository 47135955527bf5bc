import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_engine.http.error_pages import (
    port_closed,
    sandbox_not_found,
    unroutable,
    unsupported,
)
from sandbox_engine.ports.connection_pool import ConnectionPool, Dial, ProxyClosed
from sandbox_engine.ports.headers import read_request
from sandbox_http.messages import RequestHead, ResponseHead, UnsupportedRequest
from sandbox_http.tunnel import EXTENSION, ClientConnection, tunnel
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost


class PortProxy:
    """Forwards HTTP and upgrades (WebSocket) to the ports of one sandbox."""

    def __init__(
        self, dial: Dial, *, sandbox_id: str, secrets: Collection[bytes] = frozenset()
    ) -> None:
        self._pool = ConnectionPool(dial)
        self._secrets = secrets  # credentials of the engine; applications must not see them
        self._sandbox_id = sandbox_id

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        port: int,
        host: str | None = None,
        forwarded: bool = False,
    ) -> None:
        """Forward an HTTP request to the application on `port`.

        The application sees the client's Host header, unless `host` is given; if the request was
        `forwarded` by a proxy, the host by which the proxy was called.
        """
        client = _Client(scope, receive, send)
        try:
            request = read_request(
                scope, port=port, host=host, secrets=self._secrets, forwarded=forwarded
            )
            await self._forward(client, request, port)
        except _ClientGone:
            pass
        except UnsupportedRequest as error:
            await client.answer(unsupported(str(error)))
        except ConnectionRefusedError:
            await client.answer(port_closed(self._sandbox_id, port))
        except ProxyClosed:
            await client.answer(sandbox_not_found(self._sandbox_id))
        except (UpstreamLost, UpstreamInvalid, OSError):
            await client.answer(unroutable())

    async def close(self) -> None:
        """Close all connections into the sandbox; later requests open new ones."""
        await self._pool.close()

    async def _forward(self, client: "_Client", request: RequestHead, port: int) -> None:
        # The application may be about to close an idle connection, so only requests that can be
        # repeated reuse one.
        idle = self._pool.take_idle(port) if request.is_repeatable else None
        if idle is not None:
            try:
                await self._exchange(client, request, idle)
            except UpstreamLost:
                pass
            else:
                return
        await self._exchange(client, request, await self._pool.connect(port))

    async def _exchange(self, client: "_Client", request: RequestHead, upstream: Upstream) -> None:
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
            self._pool.release(upstream)


class _ClientGone(Exception):
    """The client has disconnected."""


@dataclass(frozen=True)
class _Client:
    scope: Scope
    receive: Receive
    send: Send

    @property
    def connection(self) -> ClientConnection:
        connection: ClientConnection = self.scope["extensions"][EXTENSION]["connection"]
        return connection

    async def answer(self, page: ASGIApp) -> None:
        await page(self.scope, self.receive, self.send)


async def _upload(client: _Client, upstream: Upstream, *, chunked: bool) -> None:
    """Forward the request body, then watch for a disconnect."""
    while True:
        message = await client.receive()
        if message["type"] == "http.disconnect":
            upstream.abort(_ClientGone())
            return
        body = message.get("body", b"")
        if body:
            await upstream.write(*((b"%x\r\n" % len(body), body, b"\r\n") if chunked else (body,)))
        if not message.get("more_body", False):
            if chunked:
                await upstream.write(b"0\r\n\r\n")
            upstream.request_sent = True


async def _download(client: _Client, upstream: Upstream, response: ResponseHead) -> None:
    headers = response.forwarded_headers
    await client.send(
        {"type": "http.response.start", "status": response.status, "headers": headers}
    )
    last = False
    try:
        while not last:
            body, last = await upstream.body()
            await client.send({"type": "http.response.body", "body": body, "more_body": not last})
    except _ClientGone:
        pass
    except (UpstreamLost, UpstreamInvalid, ProxyClosed):
        client.connection.cut()
