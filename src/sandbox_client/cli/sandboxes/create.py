import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.cli.commands.command_line import read_environment
from sandbox_client.cli.commands.exec import execute, require_command
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import CliError
from sandbox_client.cli.sandbox_lookup import NAME
from sandbox_client.cli.sandboxes.queue_progress import QueueProgress
from sandbox_client.models import CheckoutState, SandboxRepository
from sandbox_client.protocol.options import SandboxOptions

_CHECKOUT_POLL_S = 0.3


async def create(invocation: Invocation) -> None:
    async with invocation.client() as client:
        sandbox = await _create(client, invocation)
    invocation.output.print_model_or(sandbox.record, sandbox.id)


async def run(invocation: Invocation) -> int:
    require_command(invocation)
    async with invocation.client() as client:
        sandbox = await _create(client, invocation)
        if invocation.args.keep:
            invocation.output.note(f"Sandbox: {sandbox.id}")
            await _wait_checkout(sandbox)
            return await execute(invocation, sandbox)
        async with sandbox:
            await _wait_checkout(sandbox)
            return await execute(invocation, sandbox)


async def _wait_checkout(sandbox: AsyncSandbox) -> None:
    """Wait until the sandbox's repository is checked out."""
    while (checkout := sandbox.record.repository) and checkout.state is CheckoutState.PENDING:
        await asyncio.sleep(_CHECKOUT_POLL_S)
        await sandbox.refresh()
    if checkout is not None and checkout.state is CheckoutState.FAILED:
        raise CliError(f"{checkout.name} was not checked out: {checkout.reason}")


async def _create(client: AsyncSandboxClient, invocation: Invocation) -> AsyncSandbox:
    args = invocation.args
    wait_s = 0 if args.no_wait else in_seconds(args.wait)
    with QueueProgress(invocation.output) as line:
        return await client.create_sandbox(wait_s=wait_s, on_progress=line.tell, **_wanted(args))


def _wanted(args: argparse.Namespace) -> SandboxOptions:
    metadata = dict(args.metadata)
    if args.name is not None:
        metadata[NAME] = args.name
    return {
        "template": args.template,
        "capabilities": args.capability,
        "backend": args.backend,
        "session_id": args.session,
        "metadata": metadata,
        "envs": read_environment(args.env),
        "timeout_s": in_seconds(args.sandbox_timeout),
        "idle_timeout_s": in_seconds(args.idle),
        "on_timeout": args.on_timeout,
        "priority": args.priority,
        "mcp_servers": {} if args.mcp_servers is None else _read_servers(args.mcp_servers),
        "repository": _repository(args),
    }


def _repository(args: argparse.Namespace) -> SandboxRepository | None:
    if args.push and args.branch is None:
        raise CliError("--push needs --branch, the branch that may be pushed.")
    if args.repository is not None:
        return SandboxRepository(
            name=args.repository, ref=args.ref, branch=args.branch, push=args.push
        )
    if args.ref or args.branch or args.push:
        raise CliError("--ref, --branch and --push need --repository.")
    return None


def _read_servers(file: Path) -> dict[str, dict[str, Any]]:
    """Read MCP servers by name, at the top level or below `mcpServers`."""
    try:
        read = json.loads(file.read_text())
    except ValueError as error:
        raise CliError(f"{file} is not valid JSON: {error}.") from None
    servers = read.get("mcpServers", read) if isinstance(read, dict) else None
    if not isinstance(servers, dict):
        raise CliError(f"{file} must contain a JSON object of MCP servers by name.")
    return servers
