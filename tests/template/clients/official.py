"""The client of MCP that those who wrote the protocol publish."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import ImageContent, TextContent

from tests.template.clients.hands import Answer, Call, Site


@asynccontextmanager
async def official_client(site: Site, *, mode: str) -> AsyncIterator[Client]:
    """Connect as its users do: with an address and a header, in an era of the protocol."""
    async with (
        create_mcp_http_client(headers={"X-API-Key": site.key}) as http,
        Client(
            streamable_http_client(site.url, http_client=http), mode=mode, read_timeout_seconds=180
        ) as client,
    ):
        yield client


def calling(client: Client) -> Call:
    async def call(tool: str, arguments: dict[str, Any]) -> Answer:
        result = await client.call_tool(tool, arguments)
        texts = [part.text for part in result.content if isinstance(part, TextContent)]
        pictures = [part.data for part in result.content if isinstance(part, ImageContent)]
        return Answer("\n".join(texts), tuple(map(base64.b64decode, pictures)), result.is_error)

    return call
