from typing import Any

from sandbox_tools.coding_agents.agent import Outcome, RunContext
from sandbox_tools.coding_agents.headless import Headless, refuse_unsupported
from sandbox_tools.coding_agents.private_files import write_private_file
from sandbox_tools.coding_agents.prompts import Prompt

_MODES = {
    "bypassPermissions": ["--allow-all"],
    "acceptEdits": ["--allow-tool=write"],
    "default": [],
}


class Copilot(Headless):
    """GitHub Copilot CLI through `copilot --output-format json`."""

    name = "copilot"

    def command(self, prompt: Prompt, context: RunContext) -> list[str]:
        refuse_unsupported("copilot", prompt, "max_turns", modes=_MODES)
        return [
            *("copilot", "--output-format", "json", "--no-ask-user", "--no-auto-update"),
            *("--no-color", f"--session-id={context.record.own_id}"),
            *_MODES[prompt.permission_mode],
            *(["--model", prompt.model] if prompt.model else []),
            *([f"--available-tools={','.join(prompt.tools)}"] if prompt.tools else []),
            *_tool_server(context),
        ]

    def parse_event(self, line: dict[str, Any], context: RunContext, outcome: Outcome) -> None:
        context.record.begun = True
        data = line.get("data") or {}
        if line.get("type") == "assistant.message" and data.get("content"):
            outcome.output = str(data["content"])
        elif line.get("type") == "session.error":
            outcome.failure = f"Copilot failed: {data.get('message')}"

    def should_emit(self, line: dict[str, Any], prompt: Prompt) -> bool:
        """Leave out repeated status events and parts of messages."""
        return prompt.partial or not line.get("ephemeral")


def _tool_server(context: RunContext) -> list[str]:
    if context.tool_token is None:
        return []
    headers = {"Authorization": f"Bearer {context.tool_token}"}
    server = {"type": "http", "url": context.tool_server, "headers": headers, "tools": ["*"]}
    file = write_private_file("copilot-mcp.json", {"mcpServers": {"sandbox": server}}, context)
    return [f"--additional-mcp-config=@{file}"]
