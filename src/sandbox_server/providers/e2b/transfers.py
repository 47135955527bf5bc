import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, suppress
from datetime import timedelta
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlencode

import httpx
from e2b import AsyncSandbox
from e2b.api import proxy_to_config
from e2b.api.client_async import get_pyqwest_transport
from e2b.envd.api import (
    ENVD_API_FILE_DOWNLOAD_HTTP_VERSION,
    ENVD_API_FILES_ROUTE,
    ahandle_envd_api_exception,
)
from e2b.envd.versions import ENVD_DEFAULT_USER
from packaging.version import Version
from pyqwest import Headers, Request, Response
from pyqwest import RemoteProtocolError as BrokenProtocol

from sandbox_server.domain.errors import BackendError, BackendUnavailable, SandboxError
from sandbox_server.providers.e2b.inside_failures import INSIDE_FAILURES, inside_failure
from sandbox_server.providers.e2b.working_directories import WorkingDirectories
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.providers.protocol.transfers import ByteRange, OpenedFile

T = TypeVar("T")

STALL = timedelta(minutes=2)
"""A transfer fails after this long without progress of the sandbox."""

_STORING = timedelta(minutes=10)
_LARGEST_ERROR = 64 * 1024
_PARTIAL = HTTPStatus.PARTIAL_CONTENT
_ANSWERS = {HTTPStatus.OK, _PARTIAL, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}
_OUTAGES = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_FAILURES = (*INSIDE_FAILURES, BrokenProtocol)


class Transfers:
    """Streams file contents to and from one sandbox.

    The SDK's own calls have no ranges, and report neither length nor modification time. These calls use its
    connections, one HTTP/1.1 connection per transfer, so that transfers do not slow each other down.
    """

    def __init__(
        self,
        name: str,
        sandbox: AsyncSandbox,
        *,
        envd_version: str,
        user: str | None,
        directories: WorkingDirectories,
        stall: timedelta = STALL,
    ) -> None:
        config = sandbox.connection_config
        self._name = name
        self._sandbox = sandbox
        self._directories = directories
        self._user = user or (None if Version(envd_version) >= ENVD_DEFAULT_USER else "user")
        self._stall = stall.total_seconds()
        self._headers = config.sandbox_headers
        self._transport = get_pyqwest_transport(
            proxy_to_config(config.proxy), http_version=ENVD_API_FILE_DOWNLOAD_HTTP_VERSION
        )

    async def open(self, path: str, *, part: ByteRange | None = None) -> OpenedFile | None:
        """Open a file or a range of it; returns None if the range is outside of the file."""
        headers = {"accept-encoding": "identity"}
        if part is not None:
            headers["range"] = f"bytes={part.start}-{part.end - 1}"
        asked = self._send(await self._request("GET", path, headers))
        response = await self._ask(asked, path, limit=self._stall)
        length = _length_of(response)
        if part is not None and (response.status, length) != (_PARTIAL, part.length):
            await response.aclose()
            return None
        if length is None:
            await response.aclose()
            raise BackendError(self._name, "the sandbox does not say how long its file is")
        return OpenedFile(
            length=length,
            modified=response.headers.get("last-modified"),
            parts=self._parts(response),
            close=response.aclose,
        )

    async def upload(
        self,
        path: str,
        parts: AsyncGenerator[bytes, None],
        *,
        length: int | None,
        reported_path: str | None = None,
    ) -> None:
        """Write a file in place; an error of `parts` is raised unchanged."""
        headers = {"content-type": "application/octet-stream"}
        if length is not None:
            headers["content-length"] = str(length)
        body = _Body(parts, stall=self._stall)
        try:
            async with aclosing(parts):
                request = await self._request("POST", path, headers, body.pass_on())
                response = await self._ask(
                    self._send(request, body=body), reported_path or path, limit=None
                )
                await response.aclose()
        except SandboxError:
            if body.failure is not None:
                raise body.failure from None
            raise

    async def _request(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: AsyncIterator[bytes] | None = None,
    ) -> Request:
        query = {"path": await self._directories.resolve(path, user=self._user)}
        if self._user is not None:
            query["username"] = self._user
        url = f"{self._sandbox.envd_api_url}{ENVD_API_FILES_ROUTE}?{urlencode(query)}"
        return Request(method, url, Headers(self._headers | headers), body)

    async def _send(self, request: Request, *, body: "_Body | None" = None) -> Response:
        async with asyncio.timeout(None) as patience:
            if body is not None:
                body.time(patience)
            response = await self._transport.execute(request)
        if response.status not in _ANSWERS:
            async with asyncio.timeout(self._stall):
                await self._refuse(response)
        return response

    async def _refuse(self, response: Response) -> None:
        content = bytearray()
        async with response:
            async for chunk in response.content:
                content += bytes(chunk)
                if len(content) > _LARGEST_ERROR:
                    break
        if response.status in _OUTAGES or _is_gateways(response.status, content):
            raise BackendUnavailable(
                self._name, f"the sandbox's gateway answered {response.status}"
            )
        known = await ahandle_envd_api_exception(
            httpx.Response(response.status, content=bytes(content[:_LARGEST_ERROR]))
        )
        # Neither an error nor the file, for example a redirection, which is not followed.
        raise known or BackendError(self._name, f"the sandbox answered {response.status}")

    async def _parts(self, response: Response) -> AsyncIterator[bytes]:
        content = response.content
        while (part := await self._ask(anext(content, None), limit=self._stall)) is not None:
            yield bytes(part)

    async def _ask(self, work: Awaitable[T], path: str | None = None, *, limit: float | None) -> T:
        failure: SandboxError
        try:
            async with asyncio.timeout(limit):
                return await work
        except TimeoutError:
            failure = AnswerLost(self._name, f"the sandbox was silent for {self._stall:g} s")
        except _FAILURES as error:
            failure = await inside_failure(error, self._sandbox, name=self._name, path=path)
        # Raised outside of the handler, without context: the SDK's errors can hold the request with its token.
        raise failure


def _is_gateways(status: int, content: bytes | bytearray) -> bool:
    """Distinguish a gateway's 404 from envd's, which is JSON and names the file."""
    try:
        return status == HTTPStatus.NOT_FOUND and not isinstance(json.loads(content), dict)
    except ValueError:
        return True


def _length_of(response: Response) -> int | None:
    """Read the length of the content; unknown if it is encoded."""
    length = response.headers.get("content-length", "")
    is_plain = "content-encoding" not in response.headers
    return int(length) if is_plain and length.isascii() and length.isdecimal() else None


class _Body:
    """A request body with a time limit per part."""

    def __init__(self, parts: AsyncGenerator[bytes, None], *, stall: float) -> None:
        self._parts = parts
        self._stall = stall
        self._patience: asyncio.Timeout | None = None
        self.failure: BaseException | None = None

    def time(self, patience: asyncio.Timeout) -> None:
        self._patience = patience
        self._give(self._stall)

    async def pass_on(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._parts:
                self._give(self._stall)
                yield part
                self._give(None)  # the sender of the next part has its own limit
        except Exception as error:
            self.failure = error
            raise
        self._give(_STORING.total_seconds())

    def _give(self, seconds: float | None) -> None:
        assert self._patience is not None
        # An early answer ends the time limit before all is sent.
        with suppress(RuntimeError):
            now = asyncio.get_running_loop().time()
            self._patience.reschedule(None if seconds is None else now + seconds)
