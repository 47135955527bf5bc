import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Error

from sandbox_tools.browser.arguments import Answer
from sandbox_tools.browser.chromium import OpenBrowser, open_browser
from sandbox_tools.browser.dialogs import Dialogs
from sandbox_tools.browser.downloads import Downloads
from sandbox_tools.browser.errors import raise_tool_errors
from sandbox_tools.browser.page_actions import PageActions
from sandbox_tools.browser.page_events import PageEvents
from sandbox_tools.browser.tabs import Tabs
from sandbox_tools.toolkit.workspace import Workspace

_TIMEOUT_MS = 5_000
_ALIVE_SECONDS = 10.0


class BrowserSession:
    """A running Chromium with its tabs and pending page events."""

    def __init__(self, browser: OpenBrowser, workspace: Workspace) -> None:
        context = browser.context
        self.is_shared = browser.is_shared
        self._workspace = workspace
        self.events = PageEvents()
        self._context = context
        self._dialogs = Dialogs(self.events)
        self._downloads = Downloads(workspace, self.events)
        self._tabs = Tabs(context, self._dialogs, self._downloads, self.events)
        context.set_default_timeout(_TIMEOUT_MS)

    @asynccontextmanager
    async def actions(
        self, *, dialog: Answer, dialog_text: str | None, limit_seconds: float
    ) -> AsyncIterator[PageActions]:
        self._dialogs.answer, self._dialogs.text = dialog, dialog_text
        try:
            with raise_tool_errors():
                async with asyncio.timeout(limit_seconds):
                    tab = await self._tabs.current()
                    await tab.tracker.wait_until_stopped()
                    yield PageActions(
                        tab, self._tabs, self._downloads, self.events, self._workspace
                    )
        finally:
            self._dialogs.answer, self._dialogs.text = "dismiss", None

    async def is_alive(self) -> bool:
        """Probe the browser: playwright does not report the end of its own process."""
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                await self._context.cookies("http://localhost")
        except (Error, TimeoutError):
            return False
        return True


@asynccontextmanager
async def open_browser_session(
    executable: str, directory: Path, workspace: Workspace
) -> AsyncIterator[BrowserSession]:
    async with open_browser(executable, directory) as browser:
        yield BrowserSession(browser, workspace)
