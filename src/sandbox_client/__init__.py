"""Typed HTTP client of the sandbox server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_client._async.client import AsyncSandboxClient as AsyncSandboxClient
    from sandbox_client._async.code import AsyncCodeExecution as AsyncCodeExecution
    from sandbox_client._async.commands import AsyncCommand as AsyncCommand
    from sandbox_client._async.computers import AsyncDesktop as AsyncDesktop
    from sandbox_client._async.files import AsyncFiles as AsyncFiles
    from sandbox_client._async.mcp import AsyncTool as AsyncTool
    from sandbox_client._async.mcp import AsyncToolSession as AsyncToolSession
    from sandbox_client._async.runs import AsyncAgentRun as AsyncAgentRun
    from sandbox_client._async.sandbox import AsyncSandbox as AsyncSandbox
    from sandbox_client._async.terminals import AsyncTerminal as AsyncTerminal
    from sandbox_client._sync.client import SandboxClient as SandboxClient
    from sandbox_client._sync.code import CodeExecution as CodeExecution
    from sandbox_client._sync.commands import Command as Command
    from sandbox_client._sync.computers import Desktop as Desktop
    from sandbox_client._sync.files import Files as Files
    from sandbox_client._sync.mcp import Tool as Tool
    from sandbox_client._sync.mcp import ToolSession as ToolSession
    from sandbox_client._sync.runs import AgentRun as AgentRun
    from sandbox_client._sync.sandbox import Sandbox as Sandbox
    from sandbox_client._sync.terminals import Terminal as Terminal

# Imported lazily: the server imports only the wire models.
_WHERE = {
    "AgentRun": "_sync.runs",
    "AsyncAgentRun": "_async.runs",
    "AsyncCodeExecution": "_async.code",
    "AsyncCommand": "_async.commands",
    "AsyncDesktop": "_async.computers",
    "AsyncFiles": "_async.files",
    "AsyncSandbox": "_async.sandbox",
    "AsyncSandboxClient": "_async.client",
    "AsyncTerminal": "_async.terminals",
    "AsyncTool": "_async.mcp",
    "AsyncToolSession": "_async.mcp",
    "CodeExecution": "_sync.code",
    "Command": "_sync.commands",
    "Desktop": "_sync.computers",
    "Files": "_sync.files",
    "Sandbox": "_sync.sandbox",
    "SandboxClient": "_sync.client",
    "Terminal": "_sync.terminals",
    "Tool": "_sync.mcp",
    "ToolSession": "_sync.mcp",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
