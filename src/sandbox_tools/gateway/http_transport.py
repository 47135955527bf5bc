from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from sandbox_tools.gateway.connection import MAX_MESSAGE, Connection
from sandbox_tools.gateway.errors import UpstreamError
from sandbox_tools.gateway.server_config import LaunchSpec

_CONNECT_SECONDS = 30.0
_READ_SECONDS = 24 * 3600.0
"""Tools may be silent while they work; callers cancel them."""


@asynccontextmanager
async def over_http(launch: LaunchSpec) -> AsyncIterator[Connection]:
    """Connect over streamable HTTP, with the configured headers only, never the caller's."""
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
    async with (
        create_mcp_http_client(headers=dict(launch.headers), timeout=timeout) as client,
        streamable_http_client(
            launch.url, http_client=client, max_sse_event_size=MAX_MESSAGE
        ) as streams,
    ):
        connection = Connection(*streams)
        client.event_hooks = {"response": [_record_refusals(connection)]}
        yield connection


@asynccontextmanager
async def over_sse(launch: LaunchSpec) -> AsyncIterator[Connection]:
    """Connect over HTTP with SSE, the older transport, which some servers still require."""
    headers = dict(launch.headers)
    async with sse_client(
        launch.url, headers, timeout=_CONNECT_SECONDS, sse_read_timeout=_READ_SECONDS
    ) as streams:
        yield Connection(*streams)


def _record_refusals(connection: Connection) -> Callable[[httpx2.Response], Awaitable[None]]:
    async def note(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            status = response.status_code
            connection.refusal = UpstreamError.by_status(status) if response.is_error else None

    return note
