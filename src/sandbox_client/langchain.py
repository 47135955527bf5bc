"""LangChain tools for a sandbox. They need langchain-core, but no MCP package.

`basic_tools` works with every sandbox. `mcp_tools` are those of the tool server, if the template has one: files, shells,
a browser, coding agents, and additional MCP servers. Errors are returned to the model.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import Field

from sandbox_client import AsyncSandbox, AsyncTool, Sandbox, Tool
from sandbox_client.errors import SandboxError
from sandbox_client.models import CommandOutcome, CommandState, FileRead
from sandbox_client.protocol.mcp_messages import ToolResult

_LONGEST_ANSWER = 100_000
_MOST_FILES = 1000

CommandLine = Annotated[
    str, Field(description="Shell command line (bash), run in the working directory.")
]
Seconds = Annotated[float, Field(description="Kill the command after this many seconds.", ge=1)]
Path = Annotated[str, Field(description="Absolute path, or relative to the working directory.")]


def basic_tools(sandbox: AsyncSandbox | Sandbox) -> list[BaseTool]:
    """Create tools for commands and files; they work with every template."""
    if isinstance(sandbox, Sandbox):
        functions_of = _Functions(sandbox)
        functions: list[Callable[..., Any]] = [
            functions_of.run_command,
            functions_of.read_file,
            functions_of.write_file,
            functions_of.list_files,
        ]
        return [StructuredTool.from_function(function, **_HANDLED) for function in functions]
    async_functions = _AsyncFunctions(sandbox)
    coroutines: list[Callable[..., Awaitable[Any]]] = [
        async_functions.run_command,
        async_functions.read_file,
        async_functions.write_file,
        async_functions.list_files,
    ]
    return [
        StructuredTool.from_function(coroutine=coroutine, **_HANDLED) for coroutine in coroutines
    ]


def mcp_tools(sandbox: Sandbox) -> list[BaseTool]:
    """Create LangChain tools for all tools of the sandbox's tool server."""
    return [_of_tool(tool) for tool in sandbox.mcp_tools()]


async def async_mcp_tools(sandbox: AsyncSandbox) -> list[BaseTool]:
    """Create LangChain tools for all tools of the sandbox's tool server."""
    return [_of_async_tool(tool) for tool in await sandbox.mcp_tools()]


_HANDLED: dict[str, Any] = {"handle_tool_error": True, "handle_validation_error": True}


class _Functions:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run_command(self, command: CommandLine, timeout_s: Seconds = 120) -> str:
        """Run a shell command in the sandbox, a Linux machine, and return its output and exit code."""
        with _tool_errors():
            return _command_text(self._sandbox.run(command, timeout_s=timeout_s))

    def read_file(self, path: Path) -> str:
        """Read a text file in the sandbox."""
        with _tool_errors():
            return _file_text(self._sandbox.files.read(path, limit=_LONGEST_ANSWER + 1))

    def write_file(self, path: Path, content: str) -> str:
        """Write a text file in the sandbox. Overwrites an existing file and creates missing directories."""
        with _tool_errors():
            self._sandbox.files.write(path, content)
            return f"Wrote {path}."

    def list_files(self, path: Path = ".") -> str:
        """List a directory of the sandbox. Default: the working directory."""
        with _tool_errors():
            return _listing_text(list(self._sandbox.files.list(path)))


class _AsyncFunctions:
    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run_command(self, command: CommandLine, timeout_s: Seconds = 120) -> str:
        """Run a shell command in the sandbox, a Linux machine, and return its output and exit code."""
        with _tool_errors():
            return _command_text(await self._sandbox.run(command, timeout_s=timeout_s))

    async def read_file(self, path: Path) -> str:
        """Read a text file in the sandbox."""
        with _tool_errors():
            return _file_text(await self._sandbox.files.read(path, limit=_LONGEST_ANSWER + 1))

    async def write_file(self, path: Path, content: str) -> str:
        """Write a text file in the sandbox. Overwrites an existing file and creates missing directories."""
        with _tool_errors():
            await self._sandbox.files.write(path, content)
            return f"Wrote {path}."

    async def list_files(self, path: Path = ".") -> str:
        """List a directory of the sandbox. Default: the working directory."""
        with _tool_errors():
            return _listing_text([file async for file in self._sandbox.files.list(path)])


@contextmanager
def _tool_errors() -> Iterator[None]:
    try:
        yield
    except (SandboxError, UnicodeDecodeError) as error:
        raise ToolException(str(error)) from error


def _command_text(done: CommandOutcome) -> str:
    parts = [_cut(done.stdout.rstrip("\n")), _cut(done.stderr.rstrip("\n"))]
    ending = (
        f"exit code {done.exit_code}"
        if done.state is CommandState.EXITED
        else f"{done.state}: {done.state_reason}"
    )
    return "\n".join([*filter(None, parts), f"[{ending}]"])


def _file_text(content: bytes) -> str:
    if b"\0" in content:
        raise ToolException("Not a text file.")
    return _cut(content.decode(errors="replace"))


def _listing_text(files: Sequence[FileRead]) -> str:
    lines = [f"{file.type} {file.size} {file.name}" for file in files[:_MOST_FILES]]
    more = len(files) - len(lines)
    return (
        "\n".join([*lines, *([f"… and {more} more"] if more else [])]) or "The directory is empty."
    )


def _cut(text: str) -> str:
    missing = len(text) - _LONGEST_ANSWER
    if missing <= 0:
        return text
    half = _LONGEST_ANSWER // 2
    return f"{text[:half]}\n… {missing} characters omitted …\n{text[-half:]}"


def _of_tool(tool: Tool) -> BaseTool:
    def call(**arguments: Any) -> Any:
        with _tool_errors():
            return _result_content(tool.call(arguments))

    return StructuredTool.from_function(call, **_description_of(tool), **_HANDLED)


def _of_async_tool(tool: AsyncTool) -> BaseTool:
    async def call(**arguments: Any) -> Any:
        with _tool_errors():
            return _result_content(await tool.call(arguments))

    return StructuredTool.from_function(coroutine=call, **_description_of(tool), **_HANDLED)


def _description_of(tool: AsyncTool | Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "args_schema": tool.input_schema}


def _result_content(result: ToolResult) -> str | list[dict[str, Any]]:
    """Return text as a string, and other content as LangChain content blocks."""
    if result.is_error:
        raise ToolException(result.text)
    if all(block.get("type") == "text" for block in result.content):
        return result.text
    return [_block_of(block) for block in result.content]


def _block_of(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "image" | "audio" as kind, "data": data, "mimeType": mime_type}:
            return {"type": kind, "base64": data, "mime_type": mime_type}
    return {"type": "text", "text": str(block)}
