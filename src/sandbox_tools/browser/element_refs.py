import re

from fastmcp.exceptions import ToolError
from playwright.async_api import Error, Locator

from sandbox_tools.browser.arguments import ElementTarget
from sandbox_tools.browser.tabs import Tab

_REF = re.compile(r"(?:t(?P<tab>\d+))?(?P<of_page>(?:f\d+)?e\d+)")
_REF_OF_PAGE = re.compile(r"\[ref=((?:f\d+)?e\d+)\]")


def with_tab_refs(tab: Tab, snapshot: str) -> str:
    """Have refs tell their tab, but for the first one, where nearly all work is done.

    Within a tab playwright gives none of them out twice, whichever documents it shows.
    """
    return snapshot if tab.number == 1 else _REF_OF_PAGE.sub(rf"[ref=t{tab.number}\1]", snapshot)


async def find(tab: Tab, target: ElementTarget) -> Locator:
    if bool(target.ref) == bool(target.selector):
        raise ToolError("Name the element by either ref or selector.")
    if target.ref:
        return await _by_ref(tab, target.ref)
    return tab.page.locator(target.selector or "")


async def _by_ref(tab: Tab, ref: str) -> Locator:
    parts = _REF.fullmatch(ref)
    if parts is None:
        raise ToolError(
            f"{ref[:100]!r} is no ref. Refs are what browser_view shows in [ref=…], like e12;"
            " everything else is a selector."
        )
    number = int(parts["tab"] or 1)
    if number != tab.number:
        raise ToolError(
            f"{ref} is an element of tab {number}, and the current one is tab {tab.number}."
            " Switch with browser_tabs, or see with browser_view what this one has."
        )
    locator = tab.page.get_by_ref(parts["of_page"])
    if await _is_gone(locator):
        raise ToolError(
            f"There is no {ref} any more: the page has changed. Take a new ref of browser_view."
        )
    return locator


async def _is_gone(locator: Locator) -> bool:
    try:
        return await locator.count() == 0
    except Error as error:
        if "Invalid frame" in error.message:
            return True
        raise
