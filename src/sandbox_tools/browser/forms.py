from pathlib import Path

from fastmcp.exceptions import ToolError
from playwright.async_api import Locator, Page

from sandbox_tools.browser.page_events import single_line
from sandbox_tools.toolkit.workspace import Workspace

_MAX_LISTED = 50
_OPTIONS = """select => select.options
  ? [...select.options].map(option => ({label: option.label, value: option.value, off: option.disabled}))
  : null"""
_IS_FILES = "element => element.matches('input[type=file]')"


async def type_into(element: Locator, text: str, *, clear: bool, timeout_s: float) -> None:
    timeout_ms = timeout_s * 1_000
    if clear:
        await element.fill(text, timeout=timeout_ms)
        return
    await element.focus(timeout=timeout_ms)
    await element.press("Control+End", timeout=timeout_ms)
    await element.press_sequentially(text, timeout=timeout_ms + 100 * len(text))


async def type_into_focused(page: Page, text: str, *, clear: bool) -> None:
    if clear:
        await page.keyboard.press("Control+a")
        await page.keyboard.press("Delete")
    await page.keyboard.type(text)


async def is_file_input(element: Locator, *, timeout_s: float) -> bool:
    taken: bool = await element.evaluate(_IS_FILES, timeout=timeout_s * 1_000)
    return taken


async def set_files(element: Locator, lines: str, workspace: Workspace) -> None:
    paths = [workspace.resolve(line.strip()) for line in lines.splitlines() if line.strip()]
    for path in paths:
        _check_file(path)
    await element.set_input_files(paths)


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise ToolError(f"File {path} does not exist.")


async def select(element: Locator, wanted: list[str], *, timeout_s: float) -> None:
    """Select options by label, or else by value."""
    timeout_ms = timeout_s * 1_000
    options = await element.evaluate(_OPTIONS, timeout=timeout_ms)
    if options is None:
        raise ToolError(
            "That is not a select element. Open it with browser_click, then click the option."
        )
    values = [_value_of(choice, options) for choice in wanted]
    await element.select_option(value=values, timeout=timeout_ms, no_wait_after=True)


def _value_of(wanted: str, options: list[dict[str, str]]) -> str:
    for key in ("label", "value"):
        for option in options:
            if option[key].strip() == wanted.strip():
                return option["value"]
    there = ", ".join(
        repr(single_line(option["label"], limit=100)) for option in options[:_MAX_LISTED]
    )
    more = f" and {len(options) - _MAX_LISTED} more" if len(options) > _MAX_LISTED else ""
    raise ToolError(f"No option {wanted[:100]!r}. Available: {there}{more}.")
