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
    """What an agent does that wants somebody's permission; in a sandbox there is nobody to ask."""

    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    BYPASS_PERMISSIONS = "bypassPermissions"
    DONT_ASK = "dontAsk"
    AUTO = "auto"


class AgentRunState(StrEnum):
    """What has become of a run: lost ended unseen."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class Afterwards(StrEnum):
    """What becomes of a sandbox that is to be paused after a run: in-use is that something else ran in it by then."""

    TO_BE_PAUSED = "to-be-paused"
    PAUSED = "paused"
    IN_USE = "in-use"


def _short(prompt: str) -> str:
    if len(prompt.encode()) > _LONGEST_PROMPT:
        raise ValueError("It may have 1 MiB. Put more into a file, and name that.")
    if not prompt.strip():
        raise ValueError("It is empty.")
    return prompt


def _no_option(text: str) -> str:
    if text.startswith("-"):
        raise ValueError("It may not begin with a hyphen.")
    return text


_Word = Annotated[Name, AfterValidator(_no_option)]


class AgentRunCreate(RequestModel):
    """What a coding agent is to do in a sandbox, which must have it: the template agent-full has all."""

    agent: AgentName
    prompt: Annotated[Storable, Field(min_length=1), AfterValidator(_short)]
    model: Annotated[_Word, Field(description="Else the agent's own choice.")] | None = None
    tools: (
        Annotated[
            list[_Word],
            Field(max_length=_MOST_TOOLS, description="All that it may use, by their names."),
        ]
        | None
    ) = None
    permission_mode: Annotated[PermissionMode, Field(description="Else it may do anything.")] | (
        None
    ) = None
    cwd: Cwd = None
    session_id: (
        Annotated[
            str,
            Field(
                pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
                description="Of an earlier run's result, to go on where that ended.",
            ),
        ]
        | None
    ) = None
    max_turns: Annotated[int, Field(ge=1, le=10_000)] | None = None
    timeout_s: (
        Annotated[Seconds, Field(description="When it is interrupted; null lets it go on.")] | None
    ) = None
    envs: Annotated[
        Envs, Field(description="Variables for this run alone, such as keys; they are not kept.")
    ] = Field(default_factory=dict)
    pause_after: Annotated[
        bool,
        Field(
            strict=True,
            description="Pause the sandbox when it has ended, unless something else runs in it.",
        ),
    ] = False


class AgentResult(ResponseModel):
    """How a run ended: its agent's final words, or why there are none."""

    state: AgentRunState
    exit_code: int | None
    output: str
    cost: Annotated[float, Field(description="In US dollars, if the agent says so.")] | None
    session_id: Annotated[str, Field(description="To go on with in another run.")] | None
    changed_files: (
        Annotated[list[str], Field(description="Relative to `cwd`; null: too many to look at.")]
        | None
    )


class AgentRunRead(ResponseModel):
    """A run of an agent, and what has become of it."""

    id: str
    sandbox_id: str
    agent: AgentName
    state: AgentRunState
    state_reason: str | None
    prompt: Annotated[str, Field(description="Its first 1000 characters.")]
    model: str | None
    session_id: Annotated[str, Field(description="Which it goes on with.")] | None
    timeout_s: float | None
    afterwards: Annotated[Afterwards, Field(description="null: it is not to be paused.")] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class AgentRunOutcome(AgentRunRead):
    """A run with its result, once it has ended."""

    result: AgentResult | None
