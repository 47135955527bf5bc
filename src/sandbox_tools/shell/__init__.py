from fastmcp import FastMCP

from sandbox_tools.annotations import REACHES_OUT
from sandbox_tools.ground import Ground
from sandbox_tools.shell.commands import Commands
from sandbox_tools.shell.directories import state_directory
from sandbox_tools.shell.outputs import OutputFiles


def register(server: FastMCP, ground: Ground) -> None:
    files = OutputFiles(state_directory() / "outputs")
    server.tool(Commands(ground, files).run_command, annotations=REACHES_OUT)
