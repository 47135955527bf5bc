import asyncio

from fastmcp.tools import ToolResult
from mcp_types import ImageContent, TextContent
from playwright.async_api import Error

from sandbox_tools.browser import screenshots, snapshot
from sandbox_tools.browser.arguments import Show
from sandbox_tools.browser.errors import HANGS
from sandbox_tools.browser.page_events import in_one_line
from sandbox_tools.browser.tabs import Tab, Tabs

_TITLE_SECONDS = 5.0
_MOST_OF_A_TITLE = 200
_MOST_OF_A_URL = 500


def result(texts: list[str], image: ImageContent | None = None) -> ToolResult:
    text = TextContent(type="text", text="\n".join(texts))
    return ToolResult(content=[text, image] if image else [text])


async def with_what_is_seen(texts: list[str], tab: Tab, show: Show) -> ToolResult:
    if show == "view":
        return result([*texts, "", snapshot.shown(await snapshot.lines_of(tab))])
    if show == "screenshot":
        taken = await screenshots.of_visible_part(tab.page)
        return result([*texts, taken.about], taken.image)
    return result(texts)


async def settled(worked_in: Tab, tabs: Tabs) -> tuple[Tab, bool]:
    """Wait for what was set off, in the tab that it may have opened too; tell which that is, and whether it has loaded."""
    has_loaded = await _settle(worked_in)
    tab = await tabs.current()
    if tab is not worked_in:
        has_loaded = await _settle(tab)
    return tab, has_loaded


async def told_of(tab: Tab) -> str:
    try:
        async with asyncio.timeout(_TITLE_SECONDS):
            title = await tab.page.title()
    except TimeoutError:
        title = HANGS
    title = in_one_line(title, at_most=_MOST_OF_A_TITLE) or "(no title)"
    return f"Tab {tab.number}: {title}\nURL: {in_one_line(tab.page.url, at_most=_MOST_OF_A_URL)}"


async def _settle(tab: Tab) -> bool:
    try:
        return await tab.loading.settle()
    except Error:
        if tab.page.is_closed():  # it closed itself, which is noted
            return True
        raise
