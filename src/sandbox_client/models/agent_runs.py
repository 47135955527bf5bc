from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from sandbox_client.models.wire import (
    Cwd,
    Envs,
    Name,
    RequestModel,
    ResponseModel,
    Seconds,
    Storable,
)

_LONGEST_PROMPT = 2**20
_MOST_TOOLS = 200


class AgentName(StrEnum):
    CLAUDE = "claude"
    CODEX = "codex"
    COPILOT = "copilot"
    GEMINI = "gemini"
    OPENCODE = "opencode"


class PermissionMode(StrEnum):
    """How an agent handles actions that need permission; nobody can be asked in a sandbox."""

    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    BYPASS_PERMISSIONS = "bypassPermissions"
    DONT_ASK = "dontAsk"
    AUTO = "auto"


class AgentRunState(StrEnum):
    """State of a run; `lost` ended without a known result."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class Afterwards(StrEnum):
    """State of the pause after a run; `in-use`: not paused because something else was running."""

    TO_BE_PAUSED = "to-be-paused"
    PAUSED = "paused"
    IN_USE = "in-use"


def _short(prompt: str) -> str:
    if len(prompt.encode()) > _LONGEST_PROMPT:
        raise ValueError(
            "The prompt may have at most 1 MiB. Write more into a file and refer to it."
        )
    if not prompt.strip():
        raise ValueError("The prompt is empty.")
    return prompt


def _no_option(text: str) -> str:
    if text.startswith("-"):
        raise ValueError("It must not start with a hyphen.")
    return text


_Word = Annotated[Name, AfterValidator(_no_option)]


class AgentRunCreate(RequestModel):
    """A prompt for a coding agent that is installed in the sandbox; the template `agent-full` has all agents."""

    agent: AgentName
    prompt: Annotated[Storable, Field(min_length=1), AfterValidator(_short)]
    model: Annotated[_Word, Field(description="Default: chosen by the agent.")] | None = None
    tools: (
        Annotated[
            list[_Word],
            Field(max_length=_MOST_TOOLS, description="Names of the allowed tools. Default: all."),
        ]
        | None
    ) = None
    permission_mode: Annotated[
        PermissionMode, Field(description="Default: everything is allowed.")
    ] | (None) = None
    cwd: Cwd = None
    session_id: (
        Annotated[
            str,
            Field(
                pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
                description="The `session_id` of an earlier run's result, to continue it.",
            ),
        ]
        | None
    ) = None
    max_turns: Annotated[int, Field(ge=1, le=10_000)] | None = None
    timeout_s: (
        Annotated[
            Seconds, Field(description="Interrupt the run after this many seconds; null: no limit.")
        ]
        | None
    ) = None
    envs: Annotated[
        Envs,
        Field(
            description="Environment variables of this run only, for example API keys; not stored."
        ),
    ] = Field(default_factory=dict)
    pause_after: Annotated[
        bool,
        Field(
            strict=True,
            description="Pause the sandbox after the run, unless something else is running in it.",
        ),
    ] = False


class AgentResult(ResponseModel):
    """The result of a run: the agent's final message, or the reason why there is none."""

    state: AgentRunState
    exit_code: int | None
    output: str
    cost: Annotated[float, Field(description="In US dollars, if the agent reports it.")] | None
    session_id: Annotated[str, Field(description="Pass it to another run to continue.")] | None
    changed_files: (
        Annotated[list[str], Field(description="Relative to `cwd`; null: too many files.")] | None
    )


class AgentRunRead(ResponseModel):
    """A run of an agent and its state."""

    id: str
    sandbox_id: str
    agent: AgentName
    state: AgentRunState
    state_reason: str | None
    prompt: Annotated[str, Field(description="The first 1000 characters.")]
    model: str | None
    session_id: Annotated[str, Field(description="The session that the run continues.")] | None
    timeout_s: float | None
    afterwards: Annotated[Afterwards, Field(description="null: no pause was requested.")] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class AgentRunOutcome(AgentRunRead):
    """A run with its result after the end."""

    result: AgentResult | None
