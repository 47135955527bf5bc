from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sandbox_tools.coding_agents.prompts import Prompt

EmitMessage = Callable[[Mapping[str, Any]], None]


@dataclass
class SessionRecord:
    """The data with which a session resumes after its process or the agent server has ended."""

    id: str
    agent: str
    cwd: str
    # The id of the agent's program; None until it is known.
    own_id: str | None = None
    begun: bool = False


@dataclass
class Outcome:
    """Outcome of a prompt; `failure` is a message."""

    output: str = ""
    cost: float | None = None
    exit_code: int = 0
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Session, environment and tool server of a run."""

    record: SessionRecord
    environment: dict[str, str] = field(repr=False)
    state: Path
    tool_server: str
    tool_token: str | None = field(repr=False)


class Agent(Protocol):
    """Runs the prompts of one session, one at a time."""

    async def run_prompt(self, prompt: Prompt, context: RunContext, emit: EmitMessage) -> Outcome:
        """Run a prompt to its end and emit each message; end at once when cancelled."""

    async def interrupt(self) -> bool:
        """Ask the agent to stop; return False if it has not started."""

    async def close(self) -> None:
        """End the agent's process, if any."""
