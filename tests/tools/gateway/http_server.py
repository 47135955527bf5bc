import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from fastmcp import Context, FastMCP

from tests.ports import free_port
from tests.tools.gateway.processes import until


@dataclass
class Remote:
    """An MCP server over HTTP in this process, and the headers of all requests that it got."""

    url: str
    requests: list[dict[str, str]] = field(default_factory=list)


@asynccontextmanager
async def started_remote(
    *, port: int | None = None, transport: str = "http"
) -> AsyncIterator[Remote]:
    port = port or free_port()
    remote = Remote(f"http://127.0.0.1:{port}/mcp")
    app = _server().http_app(path="/mcp", transport=transport)  # type: ignore[arg-type]

    async def recording(scope, receive, send):
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            remote.requests.append(headers)
        await app(scope, receive, send)

    config = uvicorn.Config(recording, port=port, log_level="error", ws="none", lifespan="on")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started or serving.done())
        yield remote
    finally:
        server.should_exit = True
        await serving


def _server() -> FastMCP:
    server = FastMCP("remote")

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    @server.tool
    async def slow(context: Context) -> str:
        await context.report_progress(1, 2, "half")
        return "done"

    return server
