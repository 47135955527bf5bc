import json
from typing import Any

from sandbox_tools.coding_agents.agent import Outcome, RunContext
from sandbox_tools.coding_agents.headless import Headless, refuse_unsupported
from sandbox_tools.coding_agents.prompts import Prompt

_TOKEN = "SANDBOX_TOOLS_TOKEN"  # noqa: S105 - the name of a variable
# Codex's own sandbox rarely works in containers; without a user to ask, the mode is the limit.
_MODES = {
    "bypassPermissions": ["--dangerously-bypass-approvals-and-sandbox"],
    "acceptEdits": ["-c", "sandbox_mode=workspace-write"],
    "plan": ["-c", "sandbox_mode=read-only"],
}


class Codex(Headless):
    """Codex through `codex exec --json`."""

    name = "codex"

    def command(self, prompt: Prompt, context: RunContext) -> list[str]:
        refuse_unsupported("codex", prompt, "tools", "max_turns", modes=_MODES)
        resume = ["resume", context.record.own_id] if context.record.own_id else []
        return [
            *("codex", "exec", *resume, "--json", "--skip-git-repo-check"),
            *_MODES[prompt.permission_mode],
            *(["--model", prompt.model] if prompt.model else []),
            *_tool_server(context),
            "-",
        ]

    def variables(self, context: RunContext) -> dict[str, str]:
        return {_TOKEN: context.tool_token} if context.tool_token else {}

    def parse_event(self, line: dict[str, Any], context: RunContext, outcome: Outcome) -> None:
        item = line.get("item") or {}
        if line.get("type") == "thread.started":
            context.record.own_id = line.get("thread_id")
        elif line.get("type") == "item.completed" and item.get("type") == "agent_message":
            outcome.output = str(item.get("text", ""))
        elif line.get("type") == "turn.failed":
            reason = (line.get("error") or {}).get("message")
            outcome.failure = f"Codex failed: {reason}"


def _tool_server(context: RunContext) -> list[str]:
    if context.tool_token is None:
        return []
    server = {"url": json.dumps(context.tool_server), "bearer_token_env_var": json.dumps(_TOKEN)}
    entry = ",".join(f"{name}={value}" for name, value in server.items())
    return ["-c", f"mcp_servers.sandbox={{{entry}}}"]
