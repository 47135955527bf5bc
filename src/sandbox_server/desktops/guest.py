"""Requests to the desktop service in a sandbox, which docs/desktop.md describes."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from sandbox_http.messages import RequestHead
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.domain.errors import (
    BackendUnavailable,
    DesktopControlled,
    DesktopNotRunning,
    DesktopRecordingNotFound,
    DesktopRefused,
    PortBroken,
    PortSilent,
    ToolsRefused,
)
from sandbox_server.domain.service_ports import DESKTOP_PORT
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.pool import ConnectionPool
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.services.config import ServiceConfigWriter

_TIMEOUT = timedelta(seconds=30)
_LARGEST_ANSWER = 64 * 2**20
_LONGEST_DETAIL = 500
_REFUSALS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


@dataclass(frozen=True)
class GuestAnswer:
    """A successful answer of the service."""

    status: int
    media_type: str
    body: bytes

    def document(self) -> Any:
        """Parse the answer; the sandbox's programs may have replaced the service."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise PortBroken(DESKTOP_PORT, "answered with something that is no JSON") from None


class DesktopGuest:
    """Calls the desktop services in sandboxes with the sandboxes' own tokens.

    A service that does not know its token gets it written again; the request is then repeated once.
    """

    def __init__(self, service_config: ServiceConfigWriter) -> None:
        self._service_config = service_config
        self._pool = ConnectionPool()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def call(
        self,
        used: UsableSandbox,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        lasts: timedelta = timedelta(),
    ) -> GuestAnswer:
        """Send a request; `lasts` is how long its work takes by intention."""
        token = await self._service_config.token(used.row)
        status, media_type, body = await self._send(used, token, method, path, document, lasts)
        if status == HTTPStatus.UNAUTHORIZED:
            await self._service_config.rewrite(used.row)
            status, media_type, body = await self._send(used, token, method, path, document, lasts)
        _require_success(status, body, path)
        return GuestAnswer(status, media_type, body)

    async def _send(
        self,
        used: UsableSandbox,
        token: str,
        method: str,
        path: str,
        document: Mapping[str, Any] | None,
        lasts: timedelta,
    ) -> tuple[int, str, bytes]:
        address = used.backend.port_address(used.access, DESKTOP_PORT)
        content = b"" if document is None else json.dumps(document).encode()
        head = _head(address, token, method, path, content)
        limit = _TIMEOUT + lasts
        try:
            async with asyncio.timeout(limit.total_seconds()):
                status, media_type, body = await self._exchange(address, head, content)
        except TimeoutError:
            raise PortSilent(DESKTOP_PORT, seconds=limit.total_seconds()) from None
        except UpstreamInvalid as error:
            raise PortBroken(DESKTOP_PORT, str(error)) from None
        except UpstreamLost:
            raise PortBroken(DESKTOP_PORT, "closed the connection without a response") from None
        except OSError:
            raise BackendUnavailable(used.backend.name, "its sandboxes are unreachable") from None
        match used.backend.find_refusal(address, status, body):
            case None:
                return status, media_type, body
            case PortRefusal.CLOSED:
                raise DesktopNotRunning
            case _:
                raise BackendUnavailable(used.backend.name, "the sandbox is not running")

    async def _exchange(
        self, address: PortAddress, head: RequestHead, content: bytes
    ) -> tuple[int, str, bytes]:
        upstream = await self._pool.connect(address)
        try:
            upstream.start(head)
            if content:
                await upstream.write(content)
            response = await upstream.response()
            named = {name.lower(): value for name, value in response.headers}
            media_type = named.get(b"content-type", b"").decode("latin-1")
            return response.status, media_type, await _read(upstream)
        finally:
            self._pool.drop(upstream)


async def _read(upstream: Upstream) -> bytes:
    body, last = bytearray(), False
    while not last:
        more, last = await upstream.body()
        body += more
        if len(body) > _LARGEST_ANSWER:
            raise PortBroken(DESKTOP_PORT, f"answered with more than {_LARGEST_ANSWER} bytes")
    return bytes(body)


def _head(address: PortAddress, token: str, method: str, path: str, content: bytes) -> RequestHead:
    lines = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: " + address.authority.encode(),
        b"Connection: close",
        b"Authorization: Bearer " + token.encode(),
        *(b"%s: %s" % header for header in address.headers),
    ]
    if content:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(content)]
    return RequestHead(
        data=b"\r\n".join([*lines, b"", b""]),
        method=method,
        is_chunked=False,
        has_body=bool(content),
        upgrade=None,
    )


def _require_success(status: int, body: bytes, path: str) -> None:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    detail = _detail(body)
    if status == HTTPStatus.UNAUTHORIZED:
        raise ToolsRefused("The desktop service rejects the token that was written for it.")
    if status == HTTPStatus.CONFLICT:
        raise DesktopControlled if "control" in detail else DesktopRefused(detail)
    if status == HTTPStatus.NOT_FOUND and path.startswith("/recordings/"):
        raise DesktopRecordingNotFound(path.split("/")[2], detail=detail)
    if status in _REFUSALS:
        raise DesktopRefused(detail)
    raise PortBroken(DESKTOP_PORT, f"answered with status {status}: {detail}")


def _detail(body: bytes) -> str:
    """Read why the service refuses; its words come from the sandbox, so they are bounded."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    detail = document.get("detail") if isinstance(document, dict) else None
    text = detail if isinstance(detail, str) and detail else "The desktop rejects the request."
    return text[:_LONGEST_DETAIL]
