from dataclasses import dataclass, replace

from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult

from sandbox_tools.browser import element_refs, forms, navigation, scrolling
from sandbox_tools.browser import screenshots as pictures
from sandbox_tools.browser.arguments import Direction, MouseButton, Show, Target
from sandbox_tools.browser.downloads import Downloads
from sandbox_tools.browser.page_events import Notes, in_one_line
from sandbox_tools.browser.results import result, settled, told_of, with_what_is_seen
from sandbox_tools.browser.snapshot import lines_of, shown
from sandbox_tools.browser.tabs import Tab, Tabs
from sandbox_tools.toolkit.workspace import Workspace

_DOWNLOAD_SECONDS = 2.0
_NEW_TAB_SECONDS = 30.0


@dataclass(frozen=True)
class Turn:
    """What one call does in the browser, while the others wait."""

    tab: Tab
    tabs: Tabs
    downloads: Downloads
    notes: Notes
    workspace: Workspace

    async def navigate(self, url: str, *, timeout_s: float) -> str:
        if url in navigation.STEPS:
            return await navigation.step(self.tab, url, timeout_s=timeout_s)
        complete = navigation.complete_url(url, self.workspace)
        return await navigation.go(self.tab, complete, timeout_s=timeout_s)

    async def click(
        self, target: Target, *, button: MouseButton, double: bool, timeout_s: float
    ) -> str:
        element = await element_refs.find(self.tab, target)
        clicks = 2 if double else 1
        # Playwright would wait for a slow server and call the click failed; the report waits, and tells.
        await element.click(
            button=button, click_count=clicks, timeout=timeout_s * 1_000, no_wait_after=True
        )
        return f"Clicked {target}."

    async def type(self, target: Target, text: str, *, clear: bool, timeout_s: float) -> str:
        if not target:
            await forms.type_into_focused(self.tab.page, text, clear=clear)
            return "Typed into what has the focus."
        element = await element_refs.find(self.tab, target)
        if await forms.takes_files(element, timeout_s=timeout_s):
            await forms.give_files(element, text, self.workspace)
            return f"Gave the files to {target}."
        await forms.type_into(element, text, clear=clear, timeout_s=timeout_s)
        return f"Typed into {target}."

    async def press(self, target: Target, key: str) -> str:
        if target:
            element = await element_refs.find(self.tab, target)
            await element.press(key, no_wait_after=True)
        else:
            await self.tab.page.keyboard.press(key)
        return f"Pressed {key}."

    async def scroll(self, target: Target, direction: Direction, pixels: int | None) -> str:
        if direction == "into_view" and not target:
            raise ToolError("Name by ref or selector what is to be scrolled into view.")
        whole = Target(ref=None, selector=":root")
        element = await element_refs.find(self.tab, target or whole)
        return await scrolling.scroll(element, direction, pixels)

    async def select(self, target: Target, options: list[str], *, timeout_s: float) -> str:
        element = await element_refs.find(self.tab, target)
        await forms.select(element, options, timeout_s=timeout_s)
        return f"Selected {', '.join(options) or 'nothing'} in {target}."

    async def screenshot(self, target: Target, *, full_page: bool) -> ToolResult:
        page = self.tab.page
        if target:
            taken = await pictures.of_element(page, await element_refs.find(self.tab, target))
        elif full_page:
            taken = await pictures.of_whole_page(page)
        else:
            taken = await pictures.of_visible_part(page)
        return result([await told_of(self.tab), *self.notes.take(), taken.about], taken.image)

    async def view(
        self, *, from_line: int, find: str | None, wait_for: str | None, timeout_s: float
    ) -> ToolResult:
        await self._arrive()
        if wait_for:
            text = self.tab.page.get_by_text(wait_for).filter(visible=True).first
            await text.wait_for(timeout=timeout_s * 1_000)
        lines = await lines_of(self.tab)
        told = [await told_of(self.tab), *self.notes.take(), ""]
        return result([*told, shown(lines, from_line=from_line, find=find)])

    async def list_tabs(self) -> ToolResult:
        current = await self.tabs.current()
        told = [
            f"{await told_of(tab)}{' (the current one)' if tab is current else ''}"
            for tab in self.tabs.all()
        ]
        return result([*told, *self.notes.take()])

    async def open_tab(self, url: str | None, show: Show) -> ToolResult:
        turn = replace(self, tab=await self.tabs.open())
        if url is None:
            return await turn.report("Opened an empty tab.", show)
        return await turn.report(await turn.navigate(url, timeout_s=_NEW_TAB_SECONDS), show)

    async def switch_tab(self, number: int, show: Show) -> ToolResult:
        turn = replace(self, tab=await self.tabs.switch(number))
        return await turn.report(f"Switched to tab {number}.", show)

    async def close_tab(self, number: int, show: Show) -> ToolResult:
        await self.tabs.close(number)
        turn = replace(self, tab=await self.tabs.current())
        return await turn.report(f"Closed tab {number}.", show)

    async def report(self, did: str, show: Show) -> ToolResult:
        """Tell what was done, where that led, what happened by the way, and what is to be seen now."""
        tab, has_loaded = await settled(self.tab, self.tabs)
        await self.downloads.wait(_DOWNLOAD_SECONDS)
        texts = [did, await told_of(tab), *self.notes.take()]
        if not has_loaded:
            texts.append("It is still loading.")
        return await with_what_is_seen(texts, tab, show)

    async def _arrive(self) -> None:
        """Wait for a page that is on its way: the one before it can be read no more."""
        loading = self.tab.loading
        if loading.destination and not await loading.settle() and loading.destination:
            raise ToolError(
                f"The page is on its way to {in_one_line(loading.destination, at_most=200)}, whose server"
                " has not answered yet. Try again later, or navigate elsewhere."
            )
