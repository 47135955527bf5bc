import asyncio
import base64
import re
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from fastmcp import Client
from mcp_types import ImageContent, TextContent

from tests.browser import find_chromium
from tests.tools.browser.site import running_site

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Browsing:
    """The browser tools, by what they say."""

    tools: Client[Any]

    async def __call__(self, tool: str, **arguments) -> str:
        text, _ = await self.see(tool, **arguments)
        return text

    async def see(self, tool: str, **arguments) -> tuple[str, bytes | None]:
        text, *pictures = (await self.tools.call_tool(f"browser_{tool}", arguments)).content
        assert isinstance(text, TextContent)
        if not pictures:
            return text.text, None
        (picture,) = pictures
        assert isinstance(picture, ImageContent)
        return text.text, base64.b64decode(picture.data)

    async def until(self, happened: str, tool: str, **arguments) -> str:
        """Call a tool, and go on until something is told that a busy machine may be late with."""
        told = await self(tool, **arguments)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while happened not in told:
                told += "\n" + await self("tabs")
        return told

    async def open(self, url: str) -> str:
        return await self("navigate", url=url, show="nothing")

    async def ref(self, element: str) -> str:
        """Find the ref that browser_view gives to an element, like `button "Send"`."""
        view = await self("view")
        found = re.search(rf"{re.escape(element)}.*?\[ref=(\w+)\]", view)
        assert found, view
        return found[1]


@pytest.fixture
def site():
    with running_site() as site:
        yield site


@pytest_asyncio.fixture
async def browse(tools):
    """Give the browser of a tool server that tests share, with one tab."""
    if find_chromium() is None:
        pytest.skip("there is no browser: apt-get install --no-install-recommends chromium")
    browsing = Browsing(tools)
    for number in re.findall(r"^Tab (\d+):", await browsing("tabs"), re.MULTILINE)[1:]:
        await browsing("tabs", action="close", tab=int(number))
    return browsing
