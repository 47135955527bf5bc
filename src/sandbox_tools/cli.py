import argparse
import gc
import os
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

# Each is imported when it is asked for: the tool server has no memory to spare for what the others need.
_COMMANDS = {
    "serve": ("sandbox_tools.serve", "serve the tools by MCP"),
    "serve-agents": ("sandbox_tools.agent_server.server", "serve coding agents by WebSocket"),
    "run-agent": ("sandbox_tools.agents.run_agent", "have the agent server carry out one prompt"),
    "setting": ("sandbox_tools.setting", "print one of the settings of this sandbox"),
}

_ENV_FILE = "FASTMCP_ENV_FILE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `sandbox-tools` command."""
    parser = argparse.ArgumentParser(
        prog="sandbox-tools", description="What a sandbox has for the agents that work in it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, help=text, description=f"{text.capitalize()}.", add_help=False)
    options, rest = parser.parse_known_args(arguments)
    module, _ = _COMMANDS[options.command]
    ended: int = _import_module(module).main(rest)
    return ended


def _import_module(module: str) -> ModuleType:
    """Import without looking for garbage, of which there is none: that takes a tenth of a start."""
    gc.disable()
    # A project's .env is not about this program, whose working directory may be the project's. What
    # is started by it later is to find the variable as it was.
    os.environ[_ENV_FILE] = os.devnull
    imported = import_module(module)
    del os.environ[_ENV_FILE]
    gc.freeze()
    gc.enable()
    return imported
