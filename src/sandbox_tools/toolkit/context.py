from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastmcp import FastMCP

from sandbox_tools.toolkit import threads
from sandbox_tools.toolkit.health import Health
from sandbox_tools.toolkit.settings_file import SettingsFile
from sandbox_tools.toolkit.workspace import Workspace

Opened = Callable[[], AbstractAsyncContextManager[object]]


class Ground:
    """What all toolsets stand on."""

    def __init__(self, settings: SettingsFile, workspace: Workspace) -> None:
        self.settings = settings
        self.workspace = workspace
        self.health = Health()
        self._opened: list[Opened] = []

    def while_serving(self, opened: Opened) -> None:
        """Enter what `opened` gives when the server starts, and leave it, in reverse order, when it ends."""
        self._opened.append(opened)

    @asynccontextmanager
    async def lifespan(self, _server: FastMCP) -> AsyncIterator[dict[str, Any]]:
        threads.have_enough()
        async with AsyncExitStack() as stack:
            for opened in self._opened:
                await stack.enter_async_context(opened())
            yield {}
