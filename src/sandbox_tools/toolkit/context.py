from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandbox_tools.toolkit import threads
from sandbox_tools.toolkit.settings_file import SettingsFile
from sandbox_tools.toolkit.workspace import Workspace

HealthCheck = Callable[[], object]


class Health:
    """The content of `GET /health`. It needs no token, so it contains no paths, values or texts of others."""

    def __init__(self) -> None:
        self._parts: dict[str, HealthCheck] = {}

    def add(self, name: str, check: HealthCheck) -> None:
        """Report `check()`, which must not block, as `name`."""
        self._parts[name] = check

    def endpoint(self, server: FastMCP) -> Callable[[Request], Awaitable[Response]]:
        async def health(_request: Request) -> Response:
            tools = await server.local_provider.list_tools()
            report = {"status": "ok", "version": server.version, "tools": len(tools)}
            return JSONResponse(report | {name: check() for name, check in self._parts.items()})

        return health


Resource = Callable[[], AbstractAsyncContextManager[object]]


class ToolsetContext:
    """Settings, working directory, health and lifespan, shared by all toolsets."""

    def __init__(self, settings: SettingsFile, workspace: Workspace) -> None:
        self.settings = settings
        self.workspace = workspace
        self.health = Health()
        self._resources: list[Resource] = []

    def add_lifespan(self, opened: Resource) -> None:
        """Enter the context manager at the start of the server and leave it at its end, in reverse order."""
        self._resources.append(opened)

    @asynccontextmanager
    async def lifespan(self, _server: FastMCP) -> AsyncIterator[dict[str, Any]]:
        threads.enlarge_thread_pool()
        async with AsyncExitStack() as stack:
            for opened in self._resources:
                await stack.enter_async_context(opened())
            yield {}
