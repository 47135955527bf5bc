import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from fastmcp.exceptions import ToolError

from sandbox_tools.browser.arguments import Answer
from sandbox_tools.browser.installation import NOT_INSTALLED, browser_directory, find_chromium
from sandbox_tools.toolkit.workspace import Workspace

if TYPE_CHECKING:
    from sandbox_tools.browser.browser_session import BrowserSession
    from sandbox_tools.browser.page_actions import PageActions

_RESTARTED = "The browser crashed and was restarted. Its tabs are lost; cookies are kept."
_LIMIT_SECONDS = 60.0

T = TypeVar("T")


class Closed(Enum):
    """The outcome of closing the browser."""

    ENDED = "The browser is closed."
    LEFT = (
        "Disconnected. The browser stays, with its tabs: other clients of this sandbox use it too."
    )
    NOT_RUNNING = "The browser was not running."


class Browser:
    """The sandbox's browser: starts at first use and runs one call at a time."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._calls = asyncio.Lock()
        self._lifecycle = asyncio.Lock()
        self._running: BrowserSession | None = None
        self._resources = AsyncExitStack()

    @asynccontextmanager
    async def actions(
        self,
        *,
        dialog: Answer = "dismiss",
        dialog_text: str | None = None,
        limit_seconds: float = _LIMIT_SECONDS,
    ) -> AsyncIterator["PageActions"]:
        """Wait for earlier calls, then give exclusive access to the browser."""
        async with self._calls:
            running = await _shielded(self._ensure_running())
            async with running.actions(
                dialog=dialog, dialog_text=dialog_text, limit_seconds=limit_seconds
            ) as actions:
                yield actions

    async def close(self) -> Closed:
        """End the browser, or leave it to its other clients."""
        async with self._calls:
            is_shared = self._running is not None and self._running.is_shared
            was_running = await _shielded(self._end_locked())
        if not was_running:
            return Closed.NOT_RUNNING
        return Closed.LEFT if is_shared else Closed.ENDED

    def state(self) -> str:
        return "running" if self._running else "idle"

    async def _ensure_running(self) -> "BrowserSession":
        async with self._lifecycle:
            if self._running and await self._running.is_alive():
                return self._running
            had_ended = await self._end()
            self._running = await self._start()
            if had_ended:
                self._running.events.add(_RESTARTED)
            return self._running

    async def _end_locked(self) -> bool:
        async with self._lifecycle:
            return await self._end()

    async def _start(self) -> "BrowserSession":
        executable = find_chromium()
        if executable is None:
            raise ToolError(NOT_INSTALLED)
        # Playwright takes a tenth of the tool server's memory, and most sandboxes never browse.
        running = await asyncio.to_thread(import_module, "sandbox_tools.browser.browser_session")
        started: BrowserSession = await self._resources.enter_async_context(
            running.open_browser_session(executable, browser_directory(), self._workspace)
        )
        return started

    async def _end(self) -> bool:
        was_running = self._running is not None
        self._running = None
        await self._resources.aclose()
        return was_running


async def _shielded(change: Coroutine[Any, Any, T]) -> T:
    """Shield a start or stop from cancellation, which would leave processes behind."""
    return await asyncio.shield(asyncio.create_task(change))
