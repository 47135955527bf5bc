import asyncio
import base64
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

from sandbox_http.messages import RequestHead
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.browsers.records.cdp_client import CdpClient, CdpFailure, OnEvent
from sandbox_server.domain.access import ServerCaller
from sandbox_server.domain.service_ports import CDP_PORT
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.sandboxes.service import SandboxController

_LOCAL = f"localhost:{CDP_PORT}"
_CONNECT_TIMEOUT = timedelta(seconds=10)
_LARGEST_ANSWER = 2**20
_PATH = re.compile(r"/devtools/browser/[A-Za-z0-9-]{1,100}")
_ORIGIN = PublicOrigin(scheme="http", host=_LOCAL, client=None, path="/browser")


class Connector(Protocol):
    """Connects this server to the browser of a sandbox."""

    async def connect(self, tenant_id: str, sandbox_id: str, on_event: OnEvent) -> CdpClient:
        """Connect; raises CdpFailure or SandboxError."""


class BrowserConnector:
    """Connects this server to browsers. Its connections are no activity: they resume no sandbox and keep none awake."""

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller

    async def connect(self, tenant_id: str, sandbox_id: str, on_event: OnEvent) -> CdpClient:
        used = await self._controller.look_into(ServerCaller.of(tenant_id), sandbox_id)
        address = used.backend.port_address(used.access, CDP_PORT)
        headers = [
            b"%s: %s" % each for each in (*_ORIGIN.forwarded_headers(address), *address.headers)
        ]
        try:
            return await connect_to_browser(address, headers, on_event)
        except (OSError, TimeoutError, UpstreamInvalid, UpstreamLost) as error:
            raise CdpFailure(f"The browser cannot be reached: {error!r}") from None


async def connect_to_browser(
    address: PortAddress, headers: Sequence[bytes], on_event: OnEvent
) -> CdpClient:
    """Open the WebSocket of a browser at an address."""
    async with _exchange(address, [b"GET /json/version HTTP/1.1", *headers]) as upstream:
        described = await _read(upstream)
    found = _PATH.search(described)
    if found is None:
        raise CdpFailure("The port answers, but not as a browser.")
    lines = [
        b"GET %b HTTP/1.1" % found[0].encode(),
        *headers,
        *(b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13"),
        b"Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)),
        b"X-Keep-While-Paused: 1",
    ]
    upstream = await _connect(address)
    upstream.start(_head(lines, upgrade=b"websocket"))
    upstream.request_sent = True
    try:
        answer = await upstream.response()
    except BaseException:
        upstream.abort(UpstreamLost())
        raise
    if not answer.is_switch:
        upstream.abort(UpstreamLost())
        raise CdpFailure(f"The browser refused the connection ({answer.status}).")
    client = CdpClient(on_event)
    client.data_received(upstream.take_over(client))
    return client


async def _connect(address: PortAddress) -> Upstream:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECT_TIMEOUT.total_seconds()):
        _, upstream = await loop.create_connection(
            Upstream, address.host, address.host_port, ssl=address.tls
        )
    return upstream


@asynccontextmanager
async def _exchange(address: PortAddress, lines: Sequence[bytes]) -> AsyncIterator[Upstream]:
    upstream = await _connect(address)
    try:
        upstream.start(_head([*lines, b"Connection: close"], upgrade=None))
        upstream.request_sent = True
        yield upstream
    finally:
        upstream.abort(UpstreamLost())


async def _read(upstream: Upstream) -> str:
    answer = await upstream.response()
    body, last = b"", False
    while not last and len(body) < _LARGEST_ANSWER:
        more, last = await upstream.body()
        body += more
    if answer.status != HTTPStatus.OK:
        raise CdpFailure(f"The browser does not answer ({answer.status}).")
    try:
        return str(json.loads(body).get("webSocketDebuggerUrl"))
    except (ValueError, AttributeError):
        return ""


def _head(lines: Sequence[bytes], *, upgrade: bytes | None) -> RequestHead:
    return RequestHead(
        data=b"\r\n".join([*lines, b"", b""]),
        method="GET",
        is_chunked=False,
        has_body=False,
        upgrade=upgrade,
    )
