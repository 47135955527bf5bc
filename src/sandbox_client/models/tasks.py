from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from sandbox_client.models.agent_runs import AgentName
from sandbox_client.models.operations import LogEvent, LogGap, LogRecord
from sandbox_client.models.sandboxes import Priority
from sandbox_client.models.wire import (
    Labels,
    Name,
    RequestModel,
    ResponseModel,
    Seconds,
    Storable,
)

_LONGEST_INSTRUCTIONS = 256 * 1024
_LONGEST_COMMAND = 32 * 1024
_LONGEST_MESSAGE = 64 * 1024
_LONGEST_TITLE = 200
_LARGEST_ISSUE = 2**31 - 1

TaskLogItem = LogEvent | LogRecord | LogGap


FEWEST_ATTEMPTS = 2
MOST_ATTEMPTS = 8

Command = Annotated[
    Storable,
    Field(
        min_length=1,
        max_length=_LONGEST_COMMAND,
        description="Shell command to run instead of an agent. It reads the prompt from `$TASK_PROMPT_FILE`.",
    ),
]


class TaskStage(StrEnum):
    """Where a task is; see docs/tasks.md."""

    QUEUED = "queued"
    PREPARING = "preparing"
    WORKING = "working"
    CHECKING = "checking"
    FIXING = "fixing"
    PUBLISHING = "publishing"
    IN_REVIEW = "in-review"
    WAITING_FOR_USER = "waiting-for-user"
    MERGED = "merged"
    CLOSED = "closed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


class TaskState(StrEnum):
    """State of a task, derived from its stage; named as GitHub names those of its agent tasks."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    WAITING_FOR_USER = "waiting_for_user"
    IDLE = "idle"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class TaskPullRequest(StrEnum):
    """The result of a task: a draft that becomes ready once checks have passed, a pull request, a save, or a comment.

    The comment is the agent's report, on the pull request of the base branch or on its commit; nothing is pushed.
    """

    DRAFT = "draft"
    READY = "ready"
    NONE = "none"
    COMMENT = "comment"


class TaskBudget(RequestModel):
    """Limits of a task. At a limit the task waits for a user; its work is kept."""

    usd: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    runs: Annotated[int, Field(ge=1, le=1000)] | None = None
    fixes: (
        Annotated[int, Field(ge=0, le=20, description="Fix runs without passed checks between.")]
        | None
    ) = None
    deadline_s: (
        Annotated[Seconds, Field(description="Time for the work; a review is not limited.")] | None
    ) = None


class TaskAttemptCreate(RequestModel):
    """The agent of one of several attempts."""

    agent: AgentName | None = None
    command: Command | None = None
    model: Name | None = None

    @model_validator(mode="after")
    def _require_one(self) -> "TaskAttemptCreate":
        if self.agent is not None and self.command is not None:
            raise ValueError("Send `agent` or `command`, not both.")
        return self


def _form_of_attempts(value: object) -> str:
    return "list" if isinstance(value, list | tuple) else "count"


_AttemptCount = Annotated[int, Field(ge=FEWEST_ATTEMPTS, le=MOST_ATTEMPTS, strict=True)]
_AttemptList = Annotated[
    list[TaskAttemptCreate], Field(min_length=FEWEST_ATTEMPTS, max_length=MOST_ATTEMPTS)
]
TaskAttempts = Annotated[
    Annotated[_AttemptCount, Tag("count")] | Annotated[_AttemptList, Tag("list")],
    Discriminator(_form_of_attempts),
]


TaskChoice = Literal["automatic", "operator"]


class TaskCreate(RequestModel):
    """Work on a repository, described by a text, an issue, or both."""

    repository: Annotated[Name, Field(description="Id or full name of a repository.")]
    title: Annotated[Storable, Field(min_length=1, max_length=_LONGEST_TITLE)] | None = None
    instructions: (
        Annotated[Storable, Field(min_length=1, max_length=_LONGEST_INSTRUCTIONS)] | None
    ) = None
    issue: Annotated[int, Field(ge=1, le=_LARGEST_ISSUE)] | None = None
    base: (
        Annotated[Name, Field(description="Branch to work from. Default: the default branch.")]
        | None
    ) = None
    agent: AgentName | None = None
    command: Command | None = None
    model: Name | None = None
    attempts: (
        Annotated[
            TaskAttempts,
            Field(
                description="Work on copies of the prepared sandbox side by side, 2 to 8 times: how many times, or with which agent each. The best result is published.",
            ),
        ]
        | None
    ) = None
    choice: Annotated[
        TaskChoice,
        Field(
            description="`automatic`: the server chooses among the attempts. `operator`: the task waits until you choose one."
        ),
    ] = "automatic"
    budget: TaskBudget = Field(default_factory=TaskBudget)
    pull_request: (
        Annotated[TaskPullRequest, Field(description="Default: the repository's setting.")] | None
    ) = None
    metadata: Labels = Field(default_factory=dict)
    priority: Priority = 0

    @model_validator(mode="after")
    def _require_work(self) -> "TaskCreate":
        if self.instructions is None and self.issue is None:
            raise ValueError("Send `instructions`, `issue`, or both.")
        if self.agent is not None and self.command is not None:
            raise ValueError("Send `agent` or `command`, not both.")
        if isinstance(self.attempts, list) and {self.agent, self.command, self.model} != {None}:
            raise ValueError("Send `agent`, `command` and `model` with each of `attempts`.")
        return self


class TaskMessageCreate(RequestModel):
    """A message for the agent of a task."""

    text: Annotated[Storable, Field(min_length=1, max_length=_LONGEST_MESSAGE)]
    interrupt: Annotated[
        bool,
        Field(
            strict=True,
            description="Interrupt the current run; the next one is told. Default: tell it after the run.",
        ),
    ] = False


class TaskApprove(RequestModel):
    """Approval of what a task waits for."""

    head: (
        Annotated[
            str,
            Field(
                pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$",
                description="Approve this commit only. Default: the current head of the work.",
            ),
        ]
        | None
    ) = None


class TaskWait(ResponseModel):
    """The reason why a task waits, and the actions that continue it."""

    kind: str
    text: str
    actions: list[str]
    data: dict[str, Any] = Field(default_factory=dict)


class TaskLimits(ResponseModel):
    """Limits of a task and what was used of them."""

    usd: float | None
    spent_usd: float
    runs: int
    used_runs: int
    fixes: int
    fixes_since_green: int
    deadline_at: datetime | None


class TaskPullRead(ResponseModel):
    """The pull request of a task, as its forge last described it."""

    number: int
    url: str
    lifecycle: Literal["open", "closed", "merged"]
    draft: bool
    head_sha: str
    base: str
    mergeable: bool | None
    review: str | None
    checks: Annotated[str, Field(description="`pending`, `success` or `failure`")] | None
    updated_at: datetime


class TaskRead(ResponseModel):
    """A task."""

    id: str
    repository_id: str
    repository: Annotated[str, Field(description="Full name of the repository.")]
    title: str
    instructions: str
    source: str
    source_ref: Annotated[str, Field(description="For example the number of the issue.")] | None
    source_url: str | None
    requester: str | None
    base: str
    base_sha: str | None
    branch: str | None
    agent: AgentName | None
    command: str | None
    model: str | None
    pull_request: TaskPullRequest
    state: TaskState
    stage: TaskStage
    stage_reason: str | None
    stage_at: datetime
    waits_for: TaskWait | None
    sandbox_id: str | None
    head_sha: Annotated[str, Field(description="Head of the work after the last run.")] | None
    published_sha: str | None
    summary: Annotated[str, Field(description="As the agent reported it.")] | None
    limits: TaskLimits
    attempts: Annotated[int, Field(description="How many attempts it has; 0: one agent works.")]
    choice: Annotated[TaskChoice, Field(description="Who chooses among the attempts.")]
    chosen_attempt: int | None
    metadata: dict[str, str]
    priority: int
    created_at: datetime
    ended_at: datetime | None
    archived_at: datetime | None


class TaskMessageRead(ResponseModel):
    """Something that the agent was told, or will be."""

    id: str
    origin: str
    author: str | None
    text: str
    run: Annotated[int, Field(description="Number of the run that was told.")] | None
    created_at: datetime


class TaskAttemptRead(ResponseModel):
    """One of several attempts at a task, in a sandbox of its own."""

    number: int
    agent: AgentName | None
    command: str | None
    model: str | None
    state: Literal["queued", "working", "checking", "finished", "chosen", "not-chosen", "cancelled"]
    state_at: datetime
    reason: Annotated[str, Field(description="For example why it was not chosen.")] | None
    waits_for: (
        Annotated[TaskWait, Field(description="What a person is asked if it is chosen.")] | None
    )
    sandbox_id: str | None
    head_sha: str | None
    checks: (
        Annotated[str, Field(description="Outcome of the repository's checks, as of a run.")] | None
    )
    runs: int
    cost_usd: float
    files: Annotated[int, Field(description="Changed files, counted when one is chosen.")]
    added: Annotated[int, Field(description="Added lines.")]
    removed: Annotated[int, Field(description="Removed lines.")]
    created_at: datetime
    ended_at: (
        Annotated[datetime, Field(description="Its sandbox is deleted, or the task's.")] | None
    )


class TaskRunRead(ResponseModel):
    """One run of the agent, the setup or the checks. Its output is that of the command."""

    number: int
    kind: Literal["agent", "setup", "checks"]
    attempt: int | None
    cause: str
    sandbox_id: str
    command_id: str | None
    head_before: str | None
    head_after: str | None
    outcome: (
        Literal[
            "succeeded", "failed", "inert", "infrastructure", "timed-out", "interrupted", "lost"
        ]
        | None
    )
    summary: str | None
    cost_usd: float | None
    started_at: datetime | None
    ended_at: datetime | None


class TaskSaveRead(ResponseModel):
    """The work at an instant, kept by the server as a git bundle."""

    number: int
    run: int | None
    attempt: int | None
    kind: Annotated[
        Literal["wip", "head"],
        Field(description="`wip`: a commit of the server, with changes that were not committed."),
    ]
    cause: str
    sha: str
    head_sha: str
    base_sha: str
    files: int
    size: int
    left_out: Annotated[list[str], Field(description="Files that are too large to be kept.")]
    created_at: datetime


class TaskSaveRestore(RequestModel):
    """The sandbox for a restored save."""

    template: Annotated[Name, Field(description="Default: the repository's template.")] | None = (
        None
    )


class TaskCheckRead(ResponseModel):
    """A check of a task's pull request at the forge."""

    name: str
    origin: str
    is_done: bool
    conclusion: str | None
    url: str | None
    sha: str
    seen_at: datetime


class TaskFileChange(ResponseModel):
    path: str
    status: Annotated[str, Field(description="Git's letter: A, M, D, R, …")]


class TaskDiff(ResponseModel):
    """The difference between two states of the work."""

    from_sha: str
    to_sha: str
    files: list[TaskFileChange]
    diff: str
    is_cut: Annotated[bool, Field(description="The text is longer than what is returned.")]


class TaskOverlapSide(ResponseModel):
    """One of two tasks that overlap."""

    task_id: str
    title: str
    stage: TaskStage
    save: Annotated[int, Field(description="Number of the save that was compared.")]
    sha: str
    saved_at: datetime


class TaskOverlap(ResponseModel):
    """Two open tasks of a repository whose work would conflict, or is the same."""

    repository_id: str
    repository: Annotated[str, Field(description="Full name of the repository.")]
    base: str
    kind: Annotated[
        Literal["conflict", "identical"],
        Field(
            description="`identical`: both change the same files to the same content, so that one of the tasks is superfluous."
        ),
    ]
    tasks: Annotated[list[TaskOverlapSide], Field(min_length=2, max_length=2)]
    files: Annotated[
        list[str], Field(description="Files that conflict, or that both change; the first 100.")
    ]
    file_count: int


class TaskNotCompared(ResponseModel):
    """A task that could not be compared."""

    task_id: str
    reason: str


class TaskOverlaps(ResponseModel):
    """The overlaps of open tasks."""

    items: list[TaskOverlap]
    compared: Annotated[int, Field(description="Open tasks with saved changes that were compared.")]
    is_cut: Annotated[bool, Field(description="There are more than the 20 tasks saved last.")]
    skipped: list[TaskNotCompared]
