import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any

from fastmcp import Context
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool, ToolResult
from fastmcp.utilities.versions import VersionSpec
from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as ToolOfServer
from pydantic import PrivateAttr

from sandbox_tools.gateway.errors import UpstreamError
from sandbox_tools.gateway.gateway import Gateway
from sandbox_tools.gateway.server_config import SEPARATOR
from sandbox_tools.gateway.upstream import State, Upstream
from sandbox_tools.toolkit.truncation import MAX_MESSAGE_BYTES, truncate_middle

_LIST_TIMEOUT_SECONDS = 3
_CALL_TIMEOUT_SECONDS = 20
_PROGRESS_TIMEOUT_SECONDS = 5


class GatewayTool(Tool):
    """A tool of one of the user's servers, with its prefix."""

    _gateway: Gateway = PrivateAttr()
    _server: str = PrivateAttr()
    _tool: str = PrivateAttr()

    @classmethod
    def of(cls, gateway: Gateway, server: str, tool: ToolOfServer) -> "GatewayTool":
        made = cls(
            name=f"{server}{SEPARATOR}{tool.name}",
            title=tool.title,
            description=tool.description,
            parameters=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=tool.annotations,
            icons=tool.icons,
            meta=tool.meta,
        )
        made._gateway, made._server, made._tool = gateway, server, tool.name
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        progress = _Progress(get_context())
        try:
            result = _bounded(await self._upstream().call(self._tool, arguments, progress.report))
        except UpstreamError as failure:
            raise ToolError(f"MCP server {self._server}: {failure}") from None
        await progress.flush()
        return ToolResult.from_mcp_result(result)

    def _upstream(self) -> Upstream:
        upstream = self._gateway.upstreams.get(self._server)
        if upstream is not None:
            return upstream
        status = self._gateway.status(self._server)
        if status is not None and status.failure is not None:
            raise status.failure
        raise UpstreamError("It is disabled. Enable it with mcp_enable_server.")


def _bounded(result: CallToolResult) -> CallToolResult:
    """Truncate a text result that clients would drop for its size."""
    size = len(result.model_dump_json(by_alias=True).encode())
    if size <= MAX_MESSAGE_BYTES:
        return result
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    if len(texts) < len(result.content) or result.structured_content is not None:
        raise UpstreamError(
            f"Its result has {size:,} bytes; the limit is {MAX_MESSAGE_BYTES:,}. Request less."
        )
    cut = TextContent(type="text", text=truncate_middle("\n".join(texts)))
    return result.model_copy(update={"content": [cut]})


class _Progress:
    """Forwards progress to the caller, from tasks that do not have the call's context."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._calling_context = contextvars.copy_context()
        self._notifying: set[asyncio.Task[None]] = set()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        task = asyncio.get_running_loop().create_task(
            self._context.report_progress(progress, total, message),
            context=self._calling_context.copy(),
        )
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)
        await asyncio.wait({task})

    async def flush(self) -> None:
        """Wait for pending reports, so that the result comes last."""
        if self._notifying:
            await asyncio.wait(self._notifying, timeout=_PROGRESS_TIMEOUT_SECONDS)


class GatewayProvider(Provider):
    """Provides the tools of all ready servers."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway
        self._made: dict[str, tuple[object, dict[str, GatewayTool]]] = {}

    async def _list_tools(self) -> Sequence[Tool]:
        await self._gateway.wait_until_ready(_LIST_TIMEOUT_SECONDS)
        return [
            tool for upstream in self._gateway.listed() for tool in self._tools(upstream).values()
        ]

    async def _get_tool(
        self,
        name: str,
        version: VersionSpec | None = None,  # noqa: ARG002 - upstream tools have no versions
    ) -> Tool | None:
        server, separator, tool = name.partition(SEPARATOR)
        if not separator or self._gateway.status(server) is None:
            return None
        upstream = self._gateway.upstreams.get(server)
        if upstream is not None:
            await upstream.wait_until_ready(_CALL_TIMEOUT_SECONDS)
            if upstream.state is State.READY:
                return self._tools(upstream).get(name)
        # A placeholder whose call says why the server is unavailable, instead of "unknown tool".
        return GatewayTool.of(
            self._gateway, server, ToolOfServer(name=tool, input_schema={"type": "object"})
        )

    def _tools(self, upstream: Upstream) -> dict[str, GatewayTool]:
        listed, made = self._made.get(upstream.name, (None, {}))
        if listed is not upstream.tools:
            tools = (GatewayTool.of(self._gateway, upstream.name, tool) for tool in upstream.tools)
            made = {tool.name: tool for tool in tools}
            self._made[upstream.name] = (upstream.tools, made)
        return made
