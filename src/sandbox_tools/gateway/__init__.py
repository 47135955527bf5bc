"""MCP gateway: the user's own MCP servers behind this one, with prefixed tools and guarded processes.

    Sources (which servers there are) → Gateway (has exactly those connected) → Upstream (one of them: connects, lists, calls, tries again)
      → over_stdio (a process_guard.py process with the server's below it) or over_http

fastmcp's own proxy is not used: it queries every server for each listing, leaves processes behind, and costs 9 MB.
"""

import os
from pathlib import Path

from fastmcp import FastMCP

from sandbox_tools.gateway.config_files import SHIPPED, ConfigFiles
from sandbox_tools.gateway.gateway import Gateway
from sandbox_tools.gateway.provider import GatewayProvider
from sandbox_tools.gateway.tool_list_notifier import ToolListNotifier
from sandbox_tools.gateway.tools import GatewayTools
from sandbox_tools.toolkit.annotations import OVERWRITES, REACHES_OUT, READS
from sandbox_tools.toolkit.context import ToolsetContext

_LOGS = Path("/var/log/sandbox")


def register(server: FastMCP, context: ToolsetContext) -> None:
    user = Path.home() / ".config/sandbox/mcp.json"
    sources = ConfigFiles(context.settings, shipped=SHIPPED, user=user)
    gateway = Gateway(sources, directory=context.workspace.root, logs=_logs())
    tools = GatewayTools(gateway)
    server.tool(tools.mcp_list_servers, annotations=READS)
    server.tool(tools.mcp_add_server, annotations=REACHES_OUT)
    server.tool(tools.mcp_remove_server, annotations=OVERWRITES)
    server.tool(tools.mcp_enable_server, annotations=REACHES_OUT)
    server.tool(tools.mcp_disable_server, annotations=OVERWRITES)
    server.add_provider(GatewayProvider(gateway))
    notifier = ToolListNotifier(server)
    server.add_middleware(notifier)
    gateway.changed = notifier.notify
    context.add_lifespan(gateway.serving)
    context.health.add("servers", gateway.health)


def _logs() -> Path:
    if os.access(_LOGS, os.W_OK):
        return _LOGS
    own = Path.home() / ".local/state/sandbox"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    return own
