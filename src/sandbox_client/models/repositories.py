from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from sandbox_client.models.agent_runs import AgentName
from sandbox_client.models.wire import (
    Capability,
    Envs,
    Name,
    RequestModel,
    ResponseModel,
    Seconds,
    Storable,
)

_LONGEST_COMMAND = 32 * 1024
_MOST_ENTRIES = 100
_USD = Field(gt=0, le=1_000_000, allow_inf_nan=False)


def _plain_segments(full_name: str) -> str:
    if any(part in {".", ".."} or part.endswith(".git") for part in full_name.split("/")):
        raise ValueError("Use the name without `.`, `..` and `.git`, for example `acme/widgets`.")
    return full_name


def _valid_in_refs(prefix: str) -> str:
    if any(part.endswith(".lock") for part in prefix.split("/")):
        raise ValueError("Names of branches cannot contain `.lock`.")
    return prefix


FullName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.~-]*(/[A-Za-z0-9_.~-]+)*$",
        max_length=255,
        description="Name at the forge, for example `acme/widgets`.",
    ),
    AfterValidator(_plain_segments),
]
ForgeName = Annotated[Name, Field(description="Name of the forge, as in `PUT /v1/forges/{name}`.")]
Script = Annotated[Storable, Field(min_length=1, max_length=_LONGEST_COMMAND)]
Word = Annotated[Storable, Field(min_length=1, max_length=255)]
Words = Annotated[list[Word], Field(max_length=_MOST_ENTRIES)]
BranchPrefix = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*/?$",
        max_length=100,
        description="Branches are named by this prefix and the task's id. Default: `task-`.",
    ),
    AfterValidator(_valid_in_refs),
]


class CommitStyle(StrEnum):
    CONVENTIONAL = "conventional"
    AS_IS = "as-is"


class CiFixMode(StrEnum):
    PULL_REQUEST = "pull-request"
    COMMENT = "comment"


class _Triggers(BaseModel):
    labels: Annotated[
        Words, Field(description="An issue that gets one of these labels becomes a task.")
    ] = Field(default_factory=list)
    mention: (
        Annotated[
            Word,
            Field(
                description="A comment with this word on an issue or a pull request starts a task, for example `@agent`."
            ),
        ]
        | None
    ) = None
    users: Annotated[
        Words,
        Field(
            description="Logins that may start tasks in addition to users with write permission. Bots must be listed."
        ),
    ] = Field(default_factory=list)
    ci_fix: Annotated[
        bool, Field(strict=True, description="Failed checks of any branch start a task.")
    ] = False
    ci_fix_mode: Annotated[
        CiFixMode,
        Field(
            description="What such a task publishes: its fix as a pull request, or only its diagnosis as one comment on the "
            "branch's pull request or the commit."
        ),
    ] = CiFixMode.PULL_REQUEST


class Triggers(_Triggers, RequestModel):
    """Webhooks that start tasks."""


class TriggersRead(_Triggers, ResponseModel):
    """Webhooks that start tasks."""


class _Settings(BaseModel):
    template: Annotated[Name, Field(description="Template of the sandboxes.")] | None = None
    capabilities: (
        Annotated[
            list[Capability],
            Field(
                max_length=16,
                description="Capabilities of the sandboxes, besides those of `template`; without it, they select the template.",
            ),
        ]
        | None
    ) = None
    setup: (
        Annotated[Script, Field(description="Shell command that runs after the checkout.")] | None
    ) = None
    setup_timeout_s: Seconds | None = None
    checks: (
        Annotated[
            Script,
            Field(description="Shell command that must succeed before work is published."),
        ]
        | None
    ) = None
    checks_timeout_s: Seconds | None = None
    agent: AgentName | None = None
    agent_command: (
        Annotated[
            Script,
            Field(
                description="Shell command to run instead of an agent. It reads the prompt from `$TASK_PROMPT_FILE`."
            ),
        ]
        | None
    ) = None
    model: Word | None = None
    run_timeout_s: Seconds | None = None
    branch_prefix: BranchPrefix | None = None
    draft: (
        Annotated[
            bool,
            Field(strict=True, description="Pull requests are drafts until checks have passed."),
        ]
        | None
    ) = None
    labels: Annotated[Words, Field(description="Labels of the pull requests.")] | None = None
    reviewers: (
        Annotated[Words, Field(description="Reviewers requested for the pull requests.")] | None
    ) = None
    commit_style: (
        Annotated[
            CommitStyle,
            Field(
                description="`conventional`: commits without a conventional subject are rewritten before they are published."
            ),
        ]
        | None
    ) = None
    reads: (
        Annotated[
            list[FullName],
            Field(
                max_length=_MOST_ENTRIES,
                description="Other repositories of the forge that sandboxes may read.",
            ),
        ]
        | None
    ) = None
    protected_paths: (
        Annotated[
            Words,
            Field(description="Changes of files that match need an approval to be published."),
        ]
        | None
    ) = None
    auto_fix: (
        Annotated[
            bool, Field(strict=True, description="Failed checks of a pull request are fixed.")
        ]
        | None
    ) = None
    max_fixes: (
        Annotated[
            int, Field(ge=0, le=20, description="Fix runs in a row without passed checks between.")
        ]
        | None
    ) = None
    max_runs: Annotated[int, Field(ge=1, le=1000, description="Runs of a task.")] | None = None
    max_open: (
        Annotated[int, Field(ge=1, le=1000, description="Tasks that are worked on at a time.")]
        | None
    ) = None
    budget_usd: Annotated[float, _USD, Field(description="Cost limit of a task.")] | None = None
    budget_usd_per_day: (
        Annotated[float, _USD, Field(description="Cost limit of all tasks in 24 hours.")] | None
    ) = None
    deadline_s: Seconds | None = None
    keep_branch: (
        Annotated[
            bool, Field(strict=True, description="Do not delete branches of merged pull requests.")
        ]
        | None
    ) = None
    accept_offline: (
        Annotated[
            bool,
            Field(
                strict=True,
                description="`git push` in a sandbox succeeds while the forge is unreachable; the server forwards it later.",
            ),
        ]
        | None
    ) = None


class RepositorySettings(_Settings, RequestModel):
    """Settings of a repository. Omitted and null ones have the server's defaults."""

    triggers: Triggers | None = None


class RepositorySettingsRead(_Settings, ResponseModel):
    """The settings in effect, defaults included; null: not limited, or chosen by the server."""

    triggers: TriggersRead


class RepositoryCreate(RequestModel):
    """A repository of a forge to work on."""

    forge: ForgeName
    full_name: FullName
    settings: RepositorySettings = Field(default_factory=RepositorySettings)
    envs: Envs = Field(default_factory=dict)


class RepositoryUpdate(RequestModel):
    """Changes of a repository; only the given fields are changed."""

    settings: (
        Annotated[
            RepositorySettings,
            Field(
                description="Only the given settings are changed; null restores the default. `triggers` is replaced as a whole."
            ),
        ]
        | None
    ) = None
    envs: Annotated[Envs, Field(description="Replaces all variables.")] | None = None
    triggers_paused: (
        Annotated[
            bool,
            Field(
                strict=True,
                description="Stop or resume starting tasks by webhook. The server pauses triggers after repeated failures.",
            ),
        ]
        | None
    ) = None


class RepositoryRead(ResponseModel):
    """A repository that tasks and sandboxes can use."""

    id: str
    forge: Annotated[str, Field(description="Name of the forge.")]
    full_name: Annotated[str, Field(description="Current name at the forge.")]
    external_id: Annotated[
        str, Field(description="Id at the forge, which renaming does not change.")
    ]
    default_branch: str
    private: bool
    url: str
    may_push: Annotated[
        bool | None,
        Field(
            description="Whether the forge's credential may push; tasks need this. Null: the forge does not tell."
        ),
    ]
    settings: RepositorySettingsRead
    env_names: Annotated[
        list[str], Field(description="Names of its variables; values are not returned.")
    ]
    size_bytes: int | None
    prepared_sha: (
        Annotated[str, Field(description="Commit of the snapshot that new sandboxes start from.")]
        | None
    )
    prepared_at: datetime | None
    preparing: Annotated[bool, Field(description="A snapshot is being prepared, or will be.")]
    prepare_error: (
        Annotated[
            str,
            Field(
                description="Why the last preparation failed. Tasks and sandboxes start without a new snapshot."
            ),
        ]
        | None
    )
    triggers_paused_reason: (
        Annotated[str, Field(description="null: webhooks start tasks as configured.")] | None
    )
    created_at: datetime
