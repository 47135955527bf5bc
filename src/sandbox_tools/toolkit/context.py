from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandbox_tools.toolkit import threads
from sandbox_tools.toolkit.settings_file import SettingsFile
from sandbox_tools.toolkit.workspace import Workspace

Tell = Callable[[], object]


class Health:
    """What `GET /health` tells anybody who asks, so nothing secret: no paths, no values, no texts of others."""

    def __init__(self) -> None:
        self._parts: dict[str, Tell] = {}

    def add(self, name: str, tell: Tell) -> None:
        """Have `tell()`, which must not wait for anything, be the value of `name`."""
        self._parts[name] = tell

    def endpoint(self, server: FastMCP) -> Callable[[Request], Awaitable[Response]]:
        async def tell_health(_request: Request) -> Response:
            tools = await server.local_provider.list_tools()
            told = {"status": "ok", "version": server.version, "tools": len(tools)}
            return JSONResponse(told | {name: tell() for name, tell in self._parts.items()})

        return tell_health


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
