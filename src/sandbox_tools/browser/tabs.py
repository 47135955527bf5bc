from dataclasses import dataclass, field

from fastmcp.exceptions import ToolError
from playwright.async_api import BrowserContext, ConsoleMessage, Error, Page

from sandbox_tools.browser.dialogs import Dialogs
from sandbox_tools.browser.downloads import Downloads
from sandbox_tools.browser.navigation_tracker import NavigationTracker
from sandbox_tools.browser.page_events import PageEvents


@dataclass(eq=False)
class Tab:
    """A page under a number that no other one gets."""

    number: int
    page: Page
    tracker: NavigationTracker = field(init=False)

    def __post_init__(self) -> None:
        self.tracker = NavigationTracker(self.page)


class Tabs:
    """The pages of a browser; those that pages open by themselves come to the front, as anywhere."""

    def __init__(
        self, context: BrowserContext, dialogs: Dialogs, downloads: Downloads, events: PageEvents
    ) -> None:
        self._context = context
        self._dialogs = dialogs
        self._downloads = downloads
        self._events = events
        self._tabs: dict[int, Tab] = {}
        self._last_number = 0
        self._current: Tab | None = None
        for page in context.pages:
            self._add(page)
        context.on("page", self._resources)

    async def current(self) -> Tab:
        return self._current or await self.open()

    async def open(self) -> Tab:
        """Open an empty tab; that it is there is noted like that of any other."""
        page = await self._context.new_page()
        return next(tab for tab in self._tabs.values() if tab.page == page)

    async def switch(self, number: int) -> Tab:
        self._current = self.get(number)
        await self._current.page.bring_to_front()
        return self._current

    async def close(self, number: int) -> None:
        page = self.get(number).page
        self._forget(page)
        await page.close()

    def get(self, number: int) -> Tab:
        if number in self._tabs:
            return self._tabs[number]
        there = ", ".join(map(str, self._tabs)) or "none"
        raise ToolError(f"No tab {number}. Open tabs: {there}.")

    def all(self) -> list[Tab]:
        return list(self._tabs.values())

    def is_current(self, tab: Tab) -> bool:
        return tab is self._current

    def _resources(self, page: Page) -> None:
        before = self._current
        number = self._add(page).number
        self._events.add(f"Tab {number} was opened and is now current.")
        if before:
            before.tracker.changed.set()

    def _add(self, page: Page) -> Tab:
        self._last_number += 1
        tab = self._tabs[self._last_number] = Tab(self._last_number, page)
        self._current = tab
        page.on("dialog", self._dialogs.handle)
        page.on("download", self._downloads.keep)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._events.add(f"Uncaught error in the page: {error}"))
        page.on("close", self._closed)
        page.on("crash", self._crashed)
        return tab

    def _on_console(self, message: ConsoleMessage) -> None:
        where = message.location["url"]
        if message.type == "error" and not where.endswith("/favicon.ico"):
            self._events.add(f"Console error: {message.text} ({where})")

    def _closed(self, page: Page) -> None:
        if tab := self._forget(page):
            self._events.add(f"Tab {tab.number} was closed.")

    async def _crashed(self, page: Page) -> None:
        if tab := self._forget(page):
            self._events.add(f"Tab {tab.number} crashed and was closed: {page.url}")
        try:
            await page.close()
        except Error:  # the browser crashed too
            return

    def _forget(self, page: Page) -> Tab | None:
        gone = next((tab for tab in self._tabs.values() if tab.page == page), None)
        if gone:
            del self._tabs[gone.number]
            if gone is self._current:
                self._current = next(reversed(self._tabs.values()), None)
        return gone
