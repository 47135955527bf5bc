import json
from typing import Any

from sandbox_tools.coding_agents.agent import Outcome, Place
from sandbox_tools.coding_agents.headless import Headless, refuse
from sandbox_tools.coding_agents.prompts import Prompt

_TOKEN = "SANDBOX_TOOLS_TOKEN"  # noqa: S105 - the name of a variable
# Its own sandbox needs what a container rarely has; where nobody can be asked, the mode decides how far it may go.
_MODES = {
    "bypassPermissions": ["--dangerously-bypass-approvals-and-sandbox"],
    "acceptEdits": ["-c", "sandbox_mode=workspace-write"],
    "plan": ["-c", "sandbox_mode=read-only"],
}


class Codex(Headless):
    """Codex by `codex exec --json`."""

    name = "codex"

    def command(self, prompt: Prompt, place: Place) -> list[str]:
        refuse("codex", prompt, "tools", "max_turns", modes=_MODES)
        resume = ["resume", place.record.own_id] if place.record.own_id else []
        return [
            *("codex", "exec", *resume, "--json", "--skip-git-repo-check"),
            *_MODES[prompt.permission_mode],
            *(["--model", prompt.model] if prompt.model else []),
            *_tool_server(place),
            "-",
        ]

    def variables(self, place: Place) -> dict[str, str]:
        return {_TOKEN: place.tool_token} if place.tool_token else {}

    def learn(self, line: dict[str, Any], place: Place, outcome: Outcome) -> None:
        item = line.get("item") or {}
        if line.get("type") == "thread.started":
            place.record.own_id = line.get("thread_id")
        elif line.get("type") == "item.completed" and item.get("type") == "agent_message":
            outcome.output = str(item.get("text", ""))
        elif line.get("type") == "turn.failed":
            said = (line.get("error") or {}).get("message")
            outcome.failure = f"Codex failed: {said}"


def _tool_server(place: Place) -> list[str]:
    if place.tool_token is None:
        return []
    server = {"url": json.dumps(place.tool_server), "bearer_token_env_var": json.dumps(_TOKEN)}
    entry = ",".join(f"{name}={value}" for name, value in server.items())
    return ["-c", f"mcp_servers.sandbox={{{entry}}}"]
