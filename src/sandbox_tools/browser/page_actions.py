from dataclasses import dataclass, replace

from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult

from sandbox_tools.browser import element_refs, forms, navigation, scrolling
from sandbox_tools.browser import screenshots as pictures
from sandbox_tools.browser.arguments import Direction, ElementTarget, MouseButton, Show
from sandbox_tools.browser.downloads import Downloads
from sandbox_tools.browser.page_events import PageEvents, single_line
from sandbox_tools.browser.results import describe_tab, result, wait_for_page, with_page_content
from sandbox_tools.browser.snapshot import format_outline, read_outline
from sandbox_tools.browser.tabs import Tab, Tabs
from sandbox_tools.toolkit.workspace import Workspace

_DOWNLOAD_SECONDS = 2.0
_NEW_TAB_SECONDS = 30.0


@dataclass(frozen=True)
class PageActions:
    """The actions of one tool call, which has exclusive access to the browser."""

    tab: Tab
    tabs: Tabs
    downloads: Downloads
    events: PageEvents
    workspace: Workspace

    async def navigate(self, url: str, *, timeout_s: float) -> str:
        if url in navigation.STEPS:
            return await navigation.step(self.tab, url, timeout_s=timeout_s)
        complete = navigation.complete_url(url, self.workspace)
        return await navigation.go(self.tab, complete, timeout_s=timeout_s)

    async def click(
        self, target: ElementTarget, *, button: MouseButton, double: bool, timeout_s: float
    ) -> str:
        element = await element_refs.find(self.tab, target)
        clicks = 2 if double else 1
        # Playwright would wait for a slow server and report a failed click; `report` waits instead.
        await element.click(
            button=button, click_count=clicks, timeout=timeout_s * 1_000, no_wait_after=True
        )
        return f"Clicked {target}."

    async def type(self, target: ElementTarget, text: str, *, clear: bool, timeout_s: float) -> str:
        if not target:
            await forms.type_into_focused(self.tab.page, text, clear=clear)
            return "Typed into the focused element."
        element = await element_refs.find(self.tab, target)
        if await forms.is_file_input(element, timeout_s=timeout_s):
            await forms.set_files(element, text, self.workspace)
            return f"Set the files of {target}."
        await forms.type_into(element, text, clear=clear, timeout_s=timeout_s)
        return f"Typed into {target}."

    async def press(self, target: ElementTarget, key: str) -> str:
        if target:
            element = await element_refs.find(self.tab, target)
            await element.press(key, no_wait_after=True)
        else:
            await self.tab.page.keyboard.press(key)
        return f"Pressed {key}."

    async def scroll(self, target: ElementTarget, direction: Direction, pixels: int | None) -> str:
        if direction == "into_view" and not target:
            raise ToolError("Pass ref or selector of the element to scroll into view.")
        whole = ElementTarget(ref=None, selector=":root")
        element = await element_refs.find(self.tab, target or whole)
        return await scrolling.scroll(element, direction, pixels)

    async def select(self, target: ElementTarget, options: list[str], *, timeout_s: float) -> str:
        element = await element_refs.find(self.tab, target)
        await forms.select(element, options, timeout_s=timeout_s)
        return f"Selected {', '.join(options) or 'nothing'} in {target}."

    async def screenshot(self, target: ElementTarget, *, full_page: bool) -> ToolResult:
        page = self.tab.page
        if target:
            taken = await pictures.of_element(page, await element_refs.find(self.tab, target))
        elif full_page:
            taken = await pictures.of_whole_page(page)
        else:
            taken = await pictures.of_visible_part(page)
        return result([await describe_tab(self.tab), *self.events.take(), taken.about], taken.image)

    async def view(
        self, *, from_line: int, find: str | None, wait_for: str | None, timeout_s: float
    ) -> ToolResult:
        await self._wait_for_navigation()
        if wait_for:
            text = self.tab.page.get_by_text(wait_for).filter(visible=True).first
            await text.wait_for(timeout=timeout_s * 1_000)
        lines = await read_outline(self.tab)
        texts = [await describe_tab(self.tab), *self.events.take(), ""]
        return result([*texts, format_outline(lines, from_line=from_line, find=find)])

    async def list_tabs(self) -> ToolResult:
        current = await self.tabs.current()
        texts = [
            f"{await describe_tab(tab)}{' (current)' if tab is current else ''}"
            for tab in self.tabs.all()
        ]
        return result([*texts, *self.events.take()])

    async def open_tab(self, url: str | None, show: Show) -> ToolResult:
        actions = replace(self, tab=await self.tabs.open())
        if url is None:
            return await actions.report("Opened an empty tab.", show)
        return await actions.report(await actions.navigate(url, timeout_s=_NEW_TAB_SECONDS), show)

    async def switch_tab(self, number: int, show: Show) -> ToolResult:
        actions = replace(self, tab=await self.tabs.switch(number))
        return await actions.report(f"Switched to tab {number}.", show)

    async def close_tab(self, number: int, show: Show) -> ToolResult:
        await self.tabs.close(number)
        actions = replace(self, tab=await self.tabs.current())
        return await actions.report(f"Closed tab {number}.", show)

    async def report(self, did: str, show: Show) -> ToolResult:
        """Report the action, the resulting page, its events and, on request, its content."""
        tab, has_loaded = await wait_for_page(self.tab, self.tabs)
        await self.downloads.wait(_DOWNLOAD_SECONDS)
        texts = [did, await describe_tab(tab), *self.events.take()]
        if not has_loaded:
            texts.append("The page is still loading.")
        return await with_page_content(texts, tab, show)

    async def _wait_for_navigation(self) -> None:
        """Wait for a pending navigation: the previous page can no longer be read."""
        tracker = self.tab.tracker
        if tracker.destination and not await tracker.wait_until_idle() and tracker.destination:
            raise ToolError(
                f"The page is navigating to {single_line(tracker.destination, limit=200)}, whose server"
                " has not responded yet. Retry later or navigate elsewhere."
            )
