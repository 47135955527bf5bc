from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sandbox_tools.coding_agents.prompts import Prompt

EmitMessage = Callable[[Mapping[str, Any]], None]


@dataclass
class SessionRecord:
    """What must be known of a session to go on with it after its process, or the agent server, has ended."""

    id: str
    agent: str
    cwd: str
    # By what the agent's own program knows it; None until the program has said so.
    own_id: str | None = None
    begun: bool = False


@dataclass
class Outcome:
    """How an agent's work on a prompt ended; what failed is a sentence."""

    output: str = ""
    cost: float | None = None
    exit_code: int = 0
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where an agent works, and with what."""

    record: SessionRecord
    environment: dict[str, str] = field(repr=False)
    state: Path
    tool_server: str
    tool_token: str | None = field(repr=False)


class Agent(Protocol):
    """Carries out the prompts of one session, one after the other."""

    async def run_prompt(self, prompt: Prompt, context: RunContext, emit: EmitMessage) -> Outcome:
        """Work until the prompt is answered, telling each message; cancelled, end at once."""

    async def interrupt(self) -> bool:
        """Have it stop working soon, in its own way, if it has begun."""

    async def close(self) -> None:
        """End its process, if it has one."""
