import logging
from collections.abc import Mapping
from typing import Any

from fastmcp.exceptions import ToolError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp_types import CallToolRequestParams, TextContent
from pydantic import ValidationError as InvalidArguments

from sandbox_tools.toolkit.os_errors import describe_os_error

_log = logging.getLogger(__name__)


class ToolErrorMiddleware(Middleware):
    """Turn every failure of a tool into a message that an agent can act on."""

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            return await call_next(context)
        except ValidationError as error:
            raise _about_arguments(context.message.name, error) from error
        except ToolError as error:
            # fastmcp wraps other exceptions in a ToolError without details; the cause has them.
            if error.__cause__ is None:
                raise
            raise ToolError(_about(context.message.name, error.__cause__)) from error


def _about_arguments(tool: str, error: ValidationError) -> ToolError:
    cause = error.__cause__
    if not isinstance(cause, InvalidArguments):
        return ToolError(str(error))
    wrong = "; ".join(map(_about_argument, cause.errors(include_url=False, include_context=False)))
    return ToolError(f"Invalid arguments for {tool}. {wrong}.")


def _about_argument(wrong: Mapping[str, Any]) -> str:
    return f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"


def _about(tool: str, cause: BaseException) -> str:
    if isinstance(cause, OSError) and cause.strerror:
        return describe_os_error(cause)
    _log.error("tool_failed tool=%s", tool, exc_info=cause)
    return (
        f"{tool} failed: internal error of the tool server ({type(cause).__name__}); details are in"
        " its log. Try a different approach."
    )


class UnicodeMiddleware(Middleware):
    """Replace bytes that are not valid UTF-8, such as in file names, since JSON cannot contain them."""

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
