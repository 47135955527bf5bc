from collections.abc import Collection

from starlette.types import Receive, Scope, Send

from sandbox_engine.http.error_pages import (
    port_closed,
    sandbox_not_found,
    unroutable,
    unsupported,
)
from sandbox_engine.ports.connection_pool import ConnectionPool, Dial, ProxyClosed
from sandbox_engine.ports.exchange import Client, ClientGone, exchange
from sandbox_engine.ports.headers import KEEP_OPEN, read_request
from sandbox_http.headers import find_header
from sandbox_http.messages import RequestHead, UnsupportedRequest
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
        client = Client(scope, receive, send)
        try:
            request = read_request(
                scope, port=port, host=host, secrets=self._secrets, forwarded=forwarded
            )
            keeps_open = forwarded and find_header(scope["headers"], KEEP_OPEN) is not None
            await self._forward(client, request, port, keeps_open=keeps_open)
        except ClientGone:
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

    async def suspend(self) -> None:
        """Close the connections into a frozen sandbox, except the tunnels that are kept open while it is paused."""
        await self._pool.close(keep_tunnels=True)

    async def _forward(
        self, client: Client, request: RequestHead, port: int, *, keeps_open: bool
    ) -> None:
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
        upstream = await self._pool.connect(port)
        if keeps_open:
            self._pool.keep_open(upstream)
        await self._exchange(client, request, upstream)

    async def _exchange(self, client: Client, request: RequestHead, upstream: Upstream) -> None:
        try:
            await exchange(client, request, upstream)
        finally:
            self._pool.release(upstream)
