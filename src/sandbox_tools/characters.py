from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp_types import CallToolRequestParams, TextContent


class WholeCharacters(Middleware):
    """Has answers be text that clients can read; names of files may be any bytes, which JSON has no way to say."""

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            result = await call_next(context)
        except ToolError as error:
            raise ToolError(_whole(str(error))) from error
        for part in result.content:
            if isinstance(part, TextContent):
                part.text = _whole(part.text)
        return result


def _whole(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="replace")
