from typing import Any

from sandbox_tools.coding_agents.agent import Outcome, RunContext
from sandbox_tools.coding_agents.headless import Headless, refuse_unsupported
from sandbox_tools.coding_agents.prompts import Prompt

_MODES = {
    "bypassPermissions": "yolo",
    "acceptEdits": "auto_edit",
    "plan": "plan",
    "default": "default",
}


class Gemini(Headless):
    """Gemini CLI through `gemini --output-format stream-json`."""

    name = "gemini"

    def __init__(self) -> None:
        super().__init__()
        self._answer = ""

    def command(self, prompt: Prompt, context: RunContext) -> list[str]:
        refuse_unsupported("gemini", prompt, "tools", "max_turns", modes=_MODES)
        record, self._answer = context.record, ""
        session = "--resume" if record.begun else "--session-id"
        return [
            *("gemini", "--output-format", "stream-json", "--skip-trust"),
            *("--approval-mode", _MODES[prompt.permission_mode]),
            *(["--model", prompt.model] if prompt.model else []),
            f"{session}={record.own_id}",
        ]

    def parse_event(self, line: dict[str, Any], context: RunContext, outcome: Outcome) -> None:
        kind = line.get("type")
        if kind == "init":
            context.record.begun = True
        elif kind == "tool_use":
            self._answer = ""
        elif kind == "message" and line.get("role") == "assistant":
            self._answer += str(line.get("content", ""))
            outcome.output = self._answer
        elif kind == "error" and line.get("severity") == "error":
            outcome.failure = f"Gemini failed: {line.get('message')}"
        elif kind == "result" and line.get("status") == "error":
            reason = (line.get("error") or {}).get("message", "no reason reported")
            outcome.failure = f"Gemini failed: {reason}"
