import argparse
import json
from pathlib import Path
from typing import Any

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.cli.commands.command_line import read_environment
from sandbox_client.cli.commands.exec import execute, require_command
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import Failure
from sandbox_client.cli.sandbox_lookup import NAME
from sandbox_client.cli.sandboxes.queue_progress import WaitingLine
from sandbox_client.protocol.options import SandboxOptions


async def create(invocation: Invocation) -> None:
    async with invocation.client() as client:
        sandbox = await _create(client, invocation)
    invocation.output.show_or_say(sandbox.record, sandbox.id)


async def run(invocation: Invocation) -> int:
    require_command(invocation)
    async with invocation.client() as client:
        sandbox = await _create(client, invocation)
        if invocation.given.keep:
            invocation.output.note(f"The sandbox is {sandbox.id}.")
            return await execute(invocation, sandbox)
        async with sandbox:
            return await execute(invocation, sandbox)


async def _create(client: AsyncSandboxClient, invocation: Invocation) -> AsyncSandbox:
    given = invocation.given
    wait_s = 0 if given.no_wait else in_seconds(given.wait)
    with WaitingLine(invocation.output) as line:
        return await client.create_sandbox(wait_s=wait_s, on_progress=line.tell, **_wanted(given))


def _wanted(given: argparse.Namespace) -> SandboxOptions:
    metadata = dict(given.metadata)
    if given.name is not None:
        metadata[NAME] = given.name
    return {
        "template": given.template,
        "backend": given.backend,
        "session_id": given.session,
        "metadata": metadata,
        "envs": read_environment(given.env),
        "timeout_s": in_seconds(given.sandbox_timeout),
        "idle_timeout_s": in_seconds(given.idle),
        "on_timeout": given.on_timeout,
        "priority": given.priority,
        "mcp_servers": {} if given.mcp_servers is None else _read_servers(given.mcp_servers),
    }


def _read_servers(file: Path) -> dict[str, dict[str, Any]]:
    """Read MCP servers: by name, or as other programs have them in their files, below `mcpServers`."""
    try:
        read = json.loads(file.read_text())
    except ValueError as error:
        raise Failure(f"{file} is no JSON: {error}.") from None
    servers = read.get("mcpServers", read) if isinstance(read, dict) else None
    if not isinstance(servers, dict):
        raise Failure(f"{file} has no object of MCP servers by name.")
    return servers
