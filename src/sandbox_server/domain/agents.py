"""Runs of coding agents in sandboxes: requests and results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sandbox_server.domain.commands import CommandState


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class FollowUp(StrEnum):
    """The action on a sandbox with `pause_after` after the run."""

    TO_BE_PAUSED = "to-be-paused"
    PAUSED = "paused"
    IN_USE = "in-use"
    """The sandbox was in use, so it was not paused."""


_OF_COMMANDS = {
    CommandState.STARTING: RunState.STARTING,
    CommandState.RUNNING: RunState.RUNNING,
    CommandState.KILLED: RunState.INTERRUPTED,
    CommandState.TIMED_OUT: RunState.TIMED_OUT,
    CommandState.FAILED: RunState.FAILED,
    CommandState.LOST: RunState.LOST,
}
_OF_EXITS = {
    0: RunState.SUCCEEDED,
    1: RunState.FAILED,
    124: RunState.TIMED_OUT,
    130: RunState.INTERRUPTED,
}
_RESULT = "result"


def state_of_run(state: CommandState, exit_code: int | None) -> RunState:
    """Derive the state of a run from its command."""
    if state is CommandState.EXITED:
        return _OF_EXITS.get(exit_code or 0, RunState.FAILED)
    return _OF_COMMANDS[state]


def read_line(content: bytes) -> dict[str, Any]:
    """Parse a line of an agent's output; anything but an object is empty."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def exit_code_of(line: bytes) -> int | None:
    """Derive the exit code of a program from its last line, if that is a result."""
    document = read_line(line)
    codes = [code for code, state in _OF_EXITS.items() if state == document.get("state")]
    return codes[0] if codes and document.get("type") == _RESULT else None


_AGENT_FIELDS = (
    *("agent", "prompt", "model", "tools", "permission_mode", "cwd"),
    *("session_id", "max_turns"),
)


@dataclass(frozen=True, kw_only=True)
class AgentRunRequest:
    """A requested run; None leaves a value to the agent."""

    agent: str
    prompt: str = field(repr=False)
    model: str | None = None
    tools: Sequence[str] | None = None
    permission_mode: str | None = None
    cwd: str | None = None
    session_id: str | None = None
    max_turns: int | None = None
    timeout: timedelta | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    pause_after: bool = False

    def agent_document(self) -> dict[str, Any]:
        """Build the document that the program in the sandbox receives."""
        fields = {name: getattr(self, name) for name in _AGENT_FIELDS}
        fields["timeout_s"] = None if self.timeout is None else self.timeout.total_seconds()
        return {name: value for name, value in fields.items() if value is not None}
