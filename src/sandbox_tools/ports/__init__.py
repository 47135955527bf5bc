from fastmcp import FastMCP

from sandbox_tools.ports.tools import PortTools
from sandbox_tools.toolkit.annotations import READS
from sandbox_tools.toolkit.context import ToolsetContext


def register(server: FastMCP, context: ToolsetContext) -> None:
    server.tool(PortTools(context.settings).expose_port, annotations=READS)
