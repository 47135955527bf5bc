import asyncio

from fastmcp.tools import ToolResult
from mcp_types import ImageContent, TextContent
from playwright.async_api import Error

from sandbox_tools.browser import screenshots, snapshot
from sandbox_tools.browser.arguments import Show
from sandbox_tools.browser.errors import PAGE_UNRESPONSIVE
from sandbox_tools.browser.page_events import single_line
from sandbox_tools.browser.tabs import Tab, Tabs

_TITLE_SECONDS = 5.0
_MAX_TITLE = 200
_MAX_URL_CHARACTERS = 500


def result(texts: list[str], image: ImageContent | None = None) -> ToolResult:
    text = TextContent(type="text", text="\n".join(texts))
    return ToolResult(content=[text, image] if image else [text])


async def with_page_content(texts: list[str], tab: Tab, show: Show) -> ToolResult:
    if show == "view":
        return result([*texts, "", snapshot.format_outline(await snapshot.read_outline(tab))])
    if show == "screenshot":
        taken = await screenshots.of_visible_part(tab.page)
        return result([*texts, taken.about], taken.image)
    return result(texts)


async def wait_for_page(worked_in: Tab, tabs: Tabs) -> tuple[Tab, bool]:
    """Wait for the effects of an action; return the current tab and whether it has loaded."""
    has_loaded = await _wait_until_idle(worked_in)
    tab = await tabs.current()
    if tab is not worked_in:
        has_loaded = await _wait_until_idle(tab)
    return tab, has_loaded


async def describe_tab(tab: Tab) -> str:
    try:
        async with asyncio.timeout(_TITLE_SECONDS):
            title = await tab.page.title()
    except TimeoutError:
        title = PAGE_UNRESPONSIVE
    title = single_line(title, limit=_MAX_TITLE) or "(no title)"
    return f"Tab {tab.number}: {title}\nURL: {single_line(tab.page.url, limit=_MAX_URL_CHARACTERS)}"


async def _wait_until_idle(tab: Tab) -> bool:
    try:
        return await tab.tracker.wait_until_idle()
    except Error:
        if tab.page.is_closed():  # closed itself; reported as an event
            return True
        raise
