import argparse
import gc
import os
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

# Imported on demand: the tool server's memory must not include what other commands need.
_COMMANDS = {
    "serve": ("sandbox_tools.serve", "serve the tools over MCP"),
    "serve-agents": ("sandbox_tools.agent_server.server", "serve coding agents over WebSocket"),
    "serve-desktop": ("sandbox_tools.desktop.server", "serve this sandbox's desktop over HTTP"),
    "resize-desktop": ("sandbox_tools.desktop.resize_desktop", "resize this sandbox's display"),
    "serve-novnc": ("sandbox_tools.desktop.novnc", "serve noVNC's page for a VNC port"),
    "serve-code": ("sandbox_tools.interpreter.server", "serve the code interpreter over HTTP"),
    "run-agent": ("sandbox_tools.agents.run_agent", "run one prompt on the agent server"),
    "forward": ("sandbox_tools.forwarder.server", "forward the browser's traffic to its proxies"),
    "setting": ("sandbox_tools.setting", "print one setting of this sandbox"),
}

_ENV_FILE = "FASTMCP_ENV_FILE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `sandbox-tools` command."""
    parser = argparse.ArgumentParser(
        prog="sandbox-tools", description="Tools for agents in this sandbox."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, help=text, description=f"{text.capitalize()}.", add_help=False)
    options, rest = parser.parse_known_args(arguments)
    module, _ = _COMMANDS[options.command]
    ended: int = _import_module(module).main(rest)
    return ended


def _import_module(module: str) -> ModuleType:
    """Import with garbage collection off, which saves a tenth of the start time."""
    gc.disable()
    # The working directory may be a project: fastmcp must not read its .env. Restored afterwards
    # for child processes.
    os.environ[_ENV_FILE] = os.devnull
    imported = import_module(module)
    del os.environ[_ENV_FILE]
    gc.freeze()
    gc.enable()
    return imported
