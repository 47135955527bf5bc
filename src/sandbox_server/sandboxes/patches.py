from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.deadlines import Deadlines, set_timeout, touch
from sandbox_server.domain.due import waits_for_slot
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.requests import SandboxPatch
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.services.sealed import open_envs, seal_envs
from sandbox_server.sandboxes.targets import Change
from sandbox_server.vault import Vault


def patched(patch: SandboxPatch, caller: Caller, vault: Vault) -> Callable[[Sandbox], Change]:
    """Make the change of a row and its deadlines that a patch says."""

    def change_row(row: Sandbox) -> Change:
        if "priority" in patch:
            _require_waiting(row)
            row.priority = min(patch["priority"], caller.max_priority)
        if "metadata" in patch:
            row.labels = patch["metadata"]
        if "auto_resume" in patch:
            row.auto_resume = patch["auto_resume"]
        if "mcp_servers" in patch:
            _give_servers(row, patch["mcp_servers"], vault)
        return change_deadlines

    def change_deadlines(row: Deadlines, now: datetime) -> Deadlines:
        if "idle_timeout" in patch:
            row = touch(replace(row, idle_timeout=patch["idle_timeout"]), now)
        if "on_timeout" in patch:
            row = replace(row, on_timeout=patch["on_timeout"])
        if "timeout" in patch:
            row = set_timeout(row, now, timeout=patch["timeout"])
        return row

    return change_row


def _give_servers(row: Sandbox, servers: Mapping[str, Any], vault: Vault) -> None:
    """Have its services told of other MCP servers: what they know is out of date from here on."""
    known = open_envs(vault, row.id, row.envs_sealed)
    known.pop("mcp_servers", None)
    told = {**known, "mcp_servers": dict(servers)} if servers else known
    row.envs_sealed = seal_envs(vault, row.id, told)
    row.has_services = True
    row.services_digest = None


def _require_waiting(row: Sandbox) -> None:
    if not waits_for_slot(deadlines_of(row)):
        raise InvalidRequest(f"The sandbox is {row.state}; priority is for one that waits.")
