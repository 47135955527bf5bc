from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp import FastMCP

from sandbox_tools.browser.browser import Browser
from sandbox_tools.browser.installation import is_installed
from sandbox_tools.browser.tools import BrowserTools
from sandbox_tools.toolkit.annotations import REACHES_OUT, READS
from sandbox_tools.toolkit.context import ToolsetContext


def register(server: FastMCP, context: ToolsetContext) -> None:
    """Register the browser tools if a browser is installed; tools that always fail would waste the model's context."""
    if not is_installed():
        context.health.add("browser", lambda: "not installed; the template agent-full includes it")
        return
    browser = Browser(context.workspace)
    context.add_lifespan(lambda: _closed_at_end(browser))
    context.health.add("browser", browser.state)
    tools = BrowserTools(browser)
    for reading in (tools.browser_screenshot, tools.browser_view):
        server.tool(reading, annotations=READS)
    for acting in (
        tools.browser_navigate,
        tools.browser_click,
        tools.browser_type,
        tools.browser_press,
        tools.browser_scroll,
        tools.browser_select,
        tools.browser_tabs,
    ):
        server.tool(acting, annotations=REACHES_OUT)
    server.tool(tools.browser_close, annotations=REACHES_OUT, output_schema=None)


@asynccontextmanager
async def _closed_at_end(browser: Browser) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await browser.close()
