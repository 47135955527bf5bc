from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.api import proxy_to_config
from e2b.api.client_async import get_pyqwest_transport
from e2b.envd.client_async import PlainHTTPErrorTransport
from e2b.envd.client_shared import ENVD_JSON_CODEC, ENVD_RPC_COMPRESSION, plain_http_error
from e2b.envd.interceptors import build_interceptors
from pyqwest import Client, Request, Response, Transport

T = TypeVar("T")

_LARGEST_ERROR = 64 * 1024
_NO_ROUTE = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}


class RouteMissing(ConnectError):
    """The 404 is about the route or the sandbox, not about a process or file."""

    def __init__(self, request: str, answer: str) -> None:
        super().__init__(Code.UNIMPLEMENTED, answer)
        self.request = request


class Routes:
    """Distinguishes a missing route from a missing process or file; the SDK reads both as the same error.

    For a missing process or file envd answers with Connect's JSON.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def execute(self, request: Request) -> Response:
        response = await self._inner.execute(request)
        if response.status not in _NO_ROUTE:
            return response
        body = await _read_error(response)
        if plain_http_error(response.status, response.headers.get("content-type", ""), body):
            route = f"{request.method} {urlsplit(request.url).path}"
            raise RouteMissing(route, f"answered {response.status}")
        return Response(status=response.status, headers=response.headers, content=body)


class BoundedAnswers:
    """Limits the size of answers: root in a sandbox can send an endless one."""

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


def envd_client(make: Callable[..., T], sandbox: AsyncSandbox, *, most: int | None = None) -> T:
    """Build a client as the SDK does; `most` limits answers that are no streams."""
    config = sandbox.connection_config
    transport: Transport = get_pyqwest_transport(
        proxy_to_config(config.proxy), http_version=config.http_version
    )
    if most is not None:
        transport = BoundedAnswers(transport, most=most)
    return make(
        sandbox.envd_api_url,
        codec=ENVD_JSON_CODEC,
        interceptors=build_interceptors(config, sandbox.envd_api_url),
        http_client=Client(PlainHTTPErrorTransport(Routes(transport))),
        **ENVD_RPC_COMPRESSION,
    )


async def _read_error(response: Response) -> bytes:
    body = bytearray()
    async with response:
        async for chunk in response.content:
            body += bytes(chunk)
            if len(body) > _LARGEST_ERROR:
                break
    return bytes(body[:_LARGEST_ERROR])
