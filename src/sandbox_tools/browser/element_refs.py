import re

from fastmcp.exceptions import ToolError
from playwright.async_api import Error, Locator

from sandbox_tools.browser.arguments import ElementTarget
from sandbox_tools.browser.tabs import Tab

_REF = re.compile(r"(?:t(?P<tab>\d+))?(?P<of_page>(?:f\d+)?e\d+)")
_REF_OF_PAGE = re.compile(r"\[ref=((?:f\d+)?e\d+)\]")


def with_tab_refs(tab: Tab, snapshot: str) -> str:
    """Prefix refs with the tab number, except in the first tab.

    Playwright never reuses a ref within a tab, across documents.
    """
    return snapshot if tab.number == 1 else _REF_OF_PAGE.sub(rf"[ref=t{tab.number}\1]", snapshot)


async def find(tab: Tab, target: ElementTarget) -> Locator:
    if bool(target.ref) == bool(target.selector):
        raise ToolError("Pass exactly one of ref and selector.")
    if target.ref:
        return await _by_ref(tab, target.ref)
    return tab.page.locator(target.selector or "")


async def _by_ref(tab: Tab, ref: str) -> Locator:
    parts = _REF.fullmatch(ref)
    if parts is None:
        raise ToolError(
            f"{ref[:100]!r} is not a ref. Refs are shown by browser_view as [ref=e12]; pass anything else"
            " as selector."
        )
    number = int(parts["tab"] or 1)
    if number != tab.number:
        raise ToolError(
            f"{ref} belongs to tab {number}, but tab {tab.number} is current."
            " Switch with browser_tabs, or get refs of this tab with browser_view."
        )
    locator = tab.page.get_by_ref(parts["of_page"])
    if await _is_gone(locator):
        raise ToolError(
            f"{ref} no longer exists: the page has changed. Get a new ref with browser_view."
        )
    return locator


async def _is_gone(locator: Locator) -> bool:
    try:
        return await locator.count() == 0
    except Error as error:
        if "Invalid frame" in error.message:
            return True
        raise
