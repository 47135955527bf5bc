"""Requests to the code interpreter in a sandbox, on its port 49999."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from sandbox_http.messages import RequestHead
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.domain.capabilities import CODE
from sandbox_server.domain.errors import (
    BackendUnavailable,
    CodeContextNotFound,
    CodeRefused,
    InterpreterBusy,
    InterpreterMissing,
    InterpreterUnreachable,
    SandboxError,
)
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.service_ports import INTERPRETER_PORT
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.pool import ConnectionPool
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

LOST = (UpstreamInvalid, UpstreamLost)

_TIMEOUT = timedelta(seconds=120)  # a first context of a language takes seconds
_REST_WITHIN = timedelta(seconds=1)
_LARGEST_ANSWER = 2**20
_LONGEST_REASON = 500
_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


class InterpreterConnections:
    """Connections to the interpreters. One whose answer was read to its end serves later requests; any other is closed."""

    def __init__(self) -> None:
        self._pool = ConnectionPool()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def request(
        self,
        used: UsableSandbox,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        context_id: str | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer, None if it has none."""
        try:
            async with (
                asyncio.timeout(_TIMEOUT.total_seconds()),
                self.answer(used, method, path, body, context_id=context_id) as upstream,
            ):
                answer = await _read(upstream)
        except LOST:
            raise InterpreterUnreachable("closed the connection without an answer") from None
        except TimeoutError:
            raise InterpreterUnreachable(
                f"did not answer within {_TIMEOUT.total_seconds():g} s"
            ) from None
        try:
            return json.loads(answer) if answer.strip() else None
        except (ValueError, RecursionError):
            raise InterpreterUnreachable("answered with invalid JSON") from None

    @asynccontextmanager
    async def answer(
        self,
        used: UsableSandbox,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        context_id: str | None = None,
    ) -> AsyncIterator[Upstream]:
        """Send a request and give the connection, on which its successful answer arrives."""
        address = used.backend.port_address(used.access, INTERPRETER_PORT)
        upstream = await self._connect(used, address)
        is_whole = False
        try:
            content = b"" if body is None else json.dumps(dict(body)).encode()
            try:
                upstream.start(_head(address, method, path, content))
                await upstream.write(content)
                upstream.request_sent = True
                response = await upstream.response()
            except LOST:
                raise InterpreterUnreachable("closed the connection without an answer") from None
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                text = await _read(upstream)
                raise _failure(used, address, response.status, text, context_id=context_id)
            yield upstream
            is_whole = await _read_rest(upstream)
        finally:
            if is_whole:
                self._pool.release(upstream, address)
            else:
                self._pool.drop(upstream)

    async def _connect(self, used: UsableSandbox, address: PortAddress) -> Upstream:
        # The connections of a sandbox that was paused may be broken without a sign of it.
        if not used.woken and (idle := self._pool.take_idle(address)) is not None:
            return idle
        try:
            return await self._pool.connect(address)
        except (OSError, TimeoutError):
            raise BackendUnavailable(used.backend.name, "its sandboxes are unreachable") from None


async def _read_rest(upstream: Upstream) -> bool:
    """Read on to the end of an answer whose last line has arrived; returns whether it was there in time."""
    try:
        async with asyncio.timeout(_REST_WITHIN.total_seconds()):
            while not (await upstream.body())[1]:
                pass
    except (TimeoutError, *LOST):
        return False
    return True


async def _read(upstream: Upstream) -> bytes:
    body, last = b"", False
    while not last and len(body) <= _LARGEST_ANSWER:
        more, last = await upstream.body()
        body += more
    if not last:
        raise InterpreterUnreachable("answered with more than 1 MiB")
    return body


def _failure(
    used: UsableSandbox, address: PortAddress, status: int, body: bytes, *, context_id: str | None
) -> SandboxError:
    refusal = used.backend.find_refusal(address, status, body)
    if refusal is not None:
        return _refused(used, refusal)
    reason = storable(body.decode(errors="replace"))[:_LONGEST_REASON].strip() or str(status)
    if status == HTTPStatus.NOT_FOUND and context_id is not None:
        return CodeContextNotFound(context_id)
    if status in _REFUSED:
        return CodeRefused(reason)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return InterpreterBusy(reason)
    return InterpreterUnreachable(f"answered with {status}: {reason}")


def _refused(used: UsableSandbox, refusal: PortRefusal) -> SandboxError:
    if refusal is PortRefusal.GONE:
        return BackendUnavailable(used.backend.name, "the sandbox is not running")
    if CODE in used.row.capabilities:
        return InterpreterUnreachable("is not listening on its port")
    return InterpreterMissing()


def _head(address: PortAddress, method: str, path: str, body: bytes) -> RequestHead:
    lines = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: " + address.authority.encode(),
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        *(b"%s: %s" % header for header in address.headers),
    ]
    return RequestHead(
        data=b"\r\n".join([*lines, b"", b""]),
        method=method,
        is_chunked=False,
        has_body=bool(body),
        upgrade=None,
    )
