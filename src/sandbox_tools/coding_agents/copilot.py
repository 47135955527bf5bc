from typing import Any

from sandbox_tools.coding_agents.agent import Outcome, Place
from sandbox_tools.coding_agents.headless import Headless, refuse
from sandbox_tools.coding_agents.private_files import write_privately
from sandbox_tools.coding_agents.prompts import Prompt

_MODES = {
    "bypassPermissions": ["--allow-all"],
    "acceptEdits": ["--allow-tool=write"],
    "default": [],
}


class Copilot(Headless):
    """GitHub Copilot CLI by `copilot --output-format json`."""

    name = "copilot"

    def command(self, prompt: Prompt, place: Place) -> list[str]:
        refuse("copilot", prompt, "max_turns", modes=_MODES)
        return [
            *("copilot", "--output-format", "json", "--no-ask-user", "--no-auto-update"),
            *("--no-color", f"--session-id={place.record.own_id}"),
            *_MODES[prompt.permission_mode],
            *(["--model", prompt.model] if prompt.model else []),
            *([f"--available-tools={','.join(prompt.tools)}"] if prompt.tools else []),
            *_tool_server(place),
        ]

    def learn(self, line: dict[str, Any], place: Place, outcome: Outcome) -> None:
        place.record.begun = True
        data = line.get("data") or {}
        if line.get("type") == "assistant.message" and data.get("content"):
            outcome.output = str(data["content"])
        elif line.get("type") == "session.error":
            outcome.failure = f"Copilot failed: {data.get('message')}"

    def is_worth_telling(self, line: dict[str, Any], prompt: Prompt) -> bool:
        """Leave out what it says anew each time something of its own changes, and the pieces of messages."""
        return prompt.partial or not line.get("ephemeral")


def _tool_server(place: Place) -> list[str]:
    if place.tool_token is None:
        return []
    headers = {"Authorization": f"Bearer {place.tool_token}"}
    server = {"type": "http", "url": place.tool_server, "headers": headers, "tools": ["*"]}
    file = write_privately("copilot-mcp.json", {"mcpServers": {"sandbox": server}}, place)
    return [f"--additional-mcp-config=@{file}"]
