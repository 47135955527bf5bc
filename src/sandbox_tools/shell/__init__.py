from fastmcp import FastMCP

from sandbox_tools.shell.command_output import OutputFiles
from sandbox_tools.shell.commands import Commands
from sandbox_tools.shell.directories import state_directory
from sandbox_tools.shell.shells import Shells
from sandbox_tools.shell.tmux import Tmux
from sandbox_tools.shell.tools import ShellTools
from sandbox_tools.toolkit.annotations import ADDS, DESTROYS, REACHES_OUT, READS
from sandbox_tools.toolkit.context import ToolsetContext


def register(server: FastMCP, context: ToolsetContext) -> None:
    state = state_directory()
    shells = Shells(Tmux("sandbox"), state / "shells")
    commands = Commands(context, OutputFiles(state / "outputs"), shells)
    tools = ShellTools(context, shells)
    for tool, annotations in (
        (commands.run_command, REACHES_OUT),
        (tools.shell_open, ADDS),
        (tools.shell_run, REACHES_OUT),
        (tools.shell_view, READS),
        (tools.shell_write, REACHES_OUT),
        (tools.shell_kill, DESTROYS),
    ):
        server.tool(tool, annotations=annotations, output_schema=None)
    server.tool(tools.shell_list, annotations=READS)
