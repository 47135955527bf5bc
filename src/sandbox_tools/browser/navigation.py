import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastmcp.exceptions import ToolError
from playwright.async_api import Error, Response
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox_tools.browser.errors import network_failure
from sandbox_tools.browser.page_events import single_line
from sandbox_tools.browser.tabs import Tab
from sandbox_tools.toolkit.workspace import Workspace

STEPS = ("back", "forward", "reload")

_PAGE_READABLE: Final = "domcontentloaded"
_FIRST_ERROR_STATUS = 400
_MAX_URL_CHARACTERS = 200


async def go(tab: Tab, url: str, *, timeout_s: float) -> str:
    """Open a URL and describe the response; wait only until the page can be read."""
    navigations = tab.tracker.navigations
    try:
        async with _stop_when_late(tab, url, timeout_s):
            response = await tab.page.goto(
                url, wait_until=_PAGE_READABLE, timeout=timeout_s * 1_000
            )
    except Error as error:
        return await _describe_failure(tab, url, error, navigations)
    return _describe(url, response)


async def step(tab: Tab, where: str, *, timeout_s: float) -> str:
    """Go back or forward in the history, or reload."""
    page, before, navigations = tab.page, tab.page.url, tab.tracker.navigations
    steps = {"back": page.go_back, "forward": page.go_forward, "reload": page.reload}
    try:
        async with _stop_when_late(tab, before, timeout_s):
            response = await steps[where](wait_until=_PAGE_READABLE, timeout=timeout_s * 1_000)
    except Error as error:
        return await _describe_failure(tab, before, error, navigations)
    if response is None and page.url == before and where != "reload":
        raise ToolError(f"The history has no page to go {where} to.")
    return _describe(page.url, response)


@asynccontextmanager
async def _stop_when_late(tab: Tab, url: str, timeout_s: float) -> AsyncIterator[None]:
    """Stop a pending navigation on timeout or cancellation: the previous page is unreadable meanwhile."""
    try:
        yield
    except PlaywrightTimeout:
        if tab.tracker.destination:
            await tab.tracker.stop()
        raise ToolError(_timeout_message(url, timeout_s)) from None
    except asyncio.CancelledError:
        tab.tracker.stop_soon()
        raise


async def _describe_failure(tab: Tab, url: str, error: Error, navigations: int) -> str:
    if "Download is starting" in error.message:
        return f"{_short_url(url)} is a download, not a page."
    why = network_failure(error.message)
    if why is None:
        raise error
    if "net::ERR_ABORTED" not in error.message:
        await tab.tracker.wait_for_error_page(navigations=navigations)
    raise ToolError(f"{_short_url(url)} failed to load: {why}.")


def _timeout_message(url: str, timeout_s: float) -> str:
    return (
        f"{_short_url(url)} did not load within {timeout_s:g} s. Raise timeout_s, or check with"
        " browser_view what has loaded."
    )


def _describe(url: str, response: Response | None) -> str:
    if response is None or response.status < _FIRST_ERROR_STATUS:
        return f"Opened {_short_url(url)}."
    return (
        f"Opened {_short_url(url)}, but the server returned status {response.status}"
        f" {response.status_text}."
    )


def _short_url(url: str) -> str:
    return single_line(url, limit=_MAX_URL_CHARACTERS)


# file: is allowed because callers can read the same files with other tools; Chromium keeps web pages from them.
_OPENED = re.compile(r"(?:https?://|file://|data:|about:)", re.IGNORECASE)
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(
    r"(?:localhost|\[[0-9a-f:.]+\]|\d+(?:\.\d+){3}|[^/?#]+:\d+)(?:[:/?#]|$)", re.IGNORECASE
)


def complete_url(address: str, workspace: Workspace) -> str:
    """Turn address bar input (a URL, a host or a file path) into a URL."""
    address = address.strip()
    if _OPENED.match(address):
        return address
    if _OTHER_SCHEME.match(address):
        raise ToolError(f"{address[:200]} is not supported. Use http, https, file, data or about.")
    if address.startswith(("/", "~", "./")):
        return workspace.resolve(address).as_uri()
    return f"http://{address}" if _LOCAL.match(address) else f"https://{address}"
