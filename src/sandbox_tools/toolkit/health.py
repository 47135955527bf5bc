from collections.abc import Awaitable, Callable

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandbox_tools import VERSION

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
            told = {"status": "ok", "version": VERSION, "tools": len(tools)}
            return JSONResponse(told | {name: tell() for name, tell in self._parts.items()})

        return tell_health
