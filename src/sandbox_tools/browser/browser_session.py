import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import BrowserContext, Error

from sandbox_tools.browser.arguments import Answer
from sandbox_tools.browser.chromium import running_chromium
from sandbox_tools.browser.dialogs import Dialogs
from sandbox_tools.browser.downloads import Downloads
from sandbox_tools.browser.errors import told_as_sentences
from sandbox_tools.browser.page_actions import Turn
from sandbox_tools.browser.page_events import Notes
from sandbox_tools.browser.tabs import Tabs
from sandbox_tools.toolkit.workspace import Workspace

_PATIENCE_MS = 5_000
_ALIVE_SECONDS = 10.0


class RunningBrowser:
    """A Chromium that runs, its tabs, and what is to be told of them."""

    def __init__(self, context: BrowserContext, workspace: Workspace) -> None:
        self._workspace = workspace
        self.notes = Notes()
        self._context = context
        self._dialogs = Dialogs(self.notes)
        self._downloads = Downloads(workspace, self.notes)
        self._tabs = Tabs(context, self._dialogs, self._downloads, self.notes)
        context.set_default_timeout(_PATIENCE_MS)

    @asynccontextmanager
    async def turn(
        self, *, dialog: Answer, dialog_text: str | None, limit_seconds: float
    ) -> AsyncIterator[Turn]:
        self._dialogs.answer, self._dialogs.text = dialog, dialog_text
        try:
            with told_as_sentences():
                async with asyncio.timeout(limit_seconds):
                    tab = await self._tabs.current()
                    await tab.loading.wait_until_stopped()
                    yield Turn(tab, self._tabs, self._downloads, self.notes, self._workspace)
        finally:
            self._dialogs.answer, self._dialogs.text = "dismiss", None

    async def is_alive(self) -> bool:
        """Ask it something: if playwright's own process ended, nothing tells so."""
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                await self._context.cookies("http://localhost")
        except (Error, TimeoutError):
            return False
        return True


@asynccontextmanager
async def running_browser(
    executable: str, directory: Path, workspace: Workspace
) -> AsyncIterator[RunningBrowser]:
    async with running_chromium(executable, directory) as context:
        yield RunningBrowser(context, workspace)
