"""Tools for the desktop of this sandbox; the desktop service (`sandbox_tools.desktop`) performs them."""

import shutil

from fastmcp import FastMCP

from sandbox_tools.computer.service import DesktopClient
from sandbox_tools.computer.tools import ComputerTools
from sandbox_tools.toolkit.annotations import REACHES_OUT, READS
from sandbox_tools.toolkit.context import ToolsetContext

_X_SERVER = "Xvnc"


def register(server: FastMCP, context: ToolsetContext) -> None:
    """Register the tools if there is a desktop; tools that always fail would waste the model's context."""
    if shutil.which(_X_SERVER) is None:
        context.health.add("desktop", lambda: "not installed; the template desktop includes it")
        return
    tools = ComputerTools(DesktopClient(context.settings))
    for reading in (tools.computer_screenshot, tools.computer_zoom, tools.computer_wait):
        server.tool(reading, annotations=READS)
    for acting in (
        tools.computer_click,
        tools.computer_type,
        tools.computer_key,
        tools.computer_scroll,
        tools.computer_drag,
    ):
        server.tool(acting, annotations=REACHES_OUT)
