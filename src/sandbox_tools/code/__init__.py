from importlib.util import find_spec

from fastmcp import FastMCP

from sandbox_tools.code.tools import CodeTools
from sandbox_tools.toolkit.annotations import REACHES_OUT
from sandbox_tools.toolkit.context import ToolsetContext


def register(server: FastMCP, context: ToolsetContext) -> None:
    """Register `run_code` if a code interpreter is installed; a tool that always fails would waste the model's context."""
    del context
    if find_spec("jupyter_client") is not None:
        register_tools(server, CodeTools())


def register_tools(server: FastMCP, tools: CodeTools) -> None:
    server.tool(tools.run_code, annotations=REACHES_OUT, output_schema=None)
