from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.api import proxy_to_config
from e2b.api.client_async import get_pyqwest_transport
from e2b.envd.client_async import PlainHTTPErrorTransport
from e2b.envd.client_shared import ENVD_JSON_CODEC, ENVD_RPC_COMPRESSION
from e2b.envd.interceptors import build_interceptors
from pyqwest import Client, Request, Response, Transport

T = TypeVar("T")


class BoundedAnswers:
    """Reads no more of an answer than it may have: who has root in a sandbox may send one without an end."""

    def __init__(self, inner: Transport, *, most: int) -> None:
        self._inner = inner
        self._most = most

    async def execute(self, request: Request) -> Response:
        response = await self._inner.execute(request)
        content = self._read(response)
        return Response(status=response.status, headers=response.headers, content=content)

    async def _read(self, response: Response) -> AsyncIterator[Any]:
        received = 0
        async with response:
            async for chunk in response.content:
                received += len(chunk)
                if received > self._most:
                    text = f"the answer has more than {self._most} bytes"
                    raise ConnectError(Code.RESOURCE_EXHAUSTED, text)
                yield chunk


def bounded_client(make: Callable[..., T], sandbox: AsyncSandbox, *, most: int) -> T:
    """Make a client for questions whose answers are small, as the SDK makes its own."""
    config = sandbox.connection_config
    transport = get_pyqwest_transport(
        proxy_to_config(config.proxy), http_version=config.http_version
    )
    return make(
        sandbox.envd_api_url,
        codec=ENVD_JSON_CODEC,
        interceptors=build_interceptors(config, sandbox.envd_api_url),
        http_client=Client(PlainHTTPErrorTransport(BoundedAnswers(transport, most=most))),
        **ENVD_RPC_COMPRESSION,
    )
