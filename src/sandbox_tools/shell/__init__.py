from fastmcp import FastMCP

from sandbox_tools.annotations import ADDS, DESTROYS, REACHES_OUT, READS
from sandbox_tools.ground import Ground
from sandbox_tools.shell.commands import Commands
from sandbox_tools.shell.directories import state_directory
from sandbox_tools.shell.outputs import OutputFiles
from sandbox_tools.shell.shells import Shells
from sandbox_tools.shell.tmux import Tmux
from sandbox_tools.shell.tools import ShellTools


def register(server: FastMCP, ground: Ground) -> None:
    state = state_directory()
    shells = Shells(Tmux("sandbox"), state / "shells")
    commands = Commands(ground, OutputFiles(state / "outputs"), shells)
    tools = ShellTools(ground, shells)
    server.tool(commands.run_command, annotations=REACHES_OUT)
    server.tool(tools.shell_open, annotations=ADDS)
    server.tool(tools.shell_run, annotations=REACHES_OUT)
    server.tool(tools.shell_view, annotations=READS)
    server.tool(tools.shell_write, annotations=REACHES_OUT)
    server.tool(tools.shell_kill, annotations=DESTROYS)
    server.tool(tools.shell_list, annotations=READS)
