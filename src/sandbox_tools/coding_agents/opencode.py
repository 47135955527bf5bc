import json
from typing import Any

from sandbox_tools.coding_agents.agent import Outcome, RunContext
from sandbox_tools.coding_agents.headless import Headless, refuse_unsupported
from sandbox_tools.coding_agents.prompts import Prompt

_CONFIGURATION = "OPENCODE_CONFIG_CONTENT"
_MODES = {"bypassPermissions": ["--auto"], "plan": ["--agent", "plan"], "default": []}


class Opencode(Headless):
    """opencode through `opencode run --format json`."""

    name = "opencode"

    def command(self, prompt: Prompt, context: RunContext) -> list[str]:
        refuse_unsupported("opencode", prompt, "tools", "max_turns", modes=_MODES)
        return [
            *("opencode", "run", "--format", "json"),
            *_MODES[prompt.permission_mode],
            *(["--model", prompt.model] if prompt.model else []),
            *(["--session", context.record.own_id] if context.record.own_id else []),
        ]

    def variables(self, context: RunContext) -> dict[str, str]:
        if context.tool_token is None:
            return {}
        headers = {"Authorization": f"Bearer {context.tool_token}"}
        server = {"type": "remote", "url": context.tool_server, "headers": headers, "enabled": True}
        return {_CONFIGURATION: _with_tool_server(context.environment.get(_CONFIGURATION), server)}

    def parse_event(self, line: dict[str, Any], context: RunContext, outcome: Outcome) -> None:
        part = line.get("part") or {}
        if line.get("sessionID"):
            context.record.own_id = line["sessionID"]
        if line.get("type") == "text":
            outcome.output = str(part.get("text", ""))
        elif line.get("type") == "step_finish":
            outcome.cost = (outcome.cost or 0) + (part.get("cost") or 0)
        elif line.get("type") == "error":
            outcome.failure = f"opencode failed: {_failure_message(line.get('error'))}"


def _failure_message(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    return str((error.get("data") or {}).get("message") or error.get("name"))


def _with_tool_server(configuration: str | None, server: dict[str, Any]) -> str:
    try:
        document = json.loads(configuration or "{}")
    except ValueError:
        return configuration or "{}"
    document.setdefault("mcp", {}).setdefault("sandbox", server)
    return json.dumps(document)
