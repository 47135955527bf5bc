from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Document, Id, Row, Switch, one_of
from sandbox_server.db.models.repositories import Repository
from sandbox_server.db.models.tenants import Tenant
from sandbox_server.domain.tasks.forges import PullLifecycle
from sandbox_server.domain.tasks.stages import (
    TASK_ENDED,
    AttemptState,
    ChoiceBy,
    MessageOrigin,
    PullRequestWish,
    RunKind,
    RunOutcome,
    Stage,
    TaskSource,
    TaskTarget,
)

_ENDED = ", ".join(f"'{stage}'" for stage in sorted(TASK_ENDED))


class Task(Row):
    """A task: a change to be made to a repository. It outlives its sandboxes."""

    __tablename__ = "tasks"
    __table_args__ = (
        one_of("stage", *Stage),
        one_of("target", *TaskTarget),
        one_of("source", *TaskSource),
        one_of("pull_request", *PullRequestWish),
        one_of("choice", *ChoiceBy),
        CheckConstraint(f"(ended_at IS NOT NULL) = (stage IN ({_ENDED}))", name="ended_at"),
        # One open task per issue, and one task per branch.
        Index(
            "tasks_source_idx",
            "repository_id",
            "source",
            "source_ref",
            unique=True,
            postgresql_where=text("ended_at IS NULL AND source_ref IS NOT NULL"),
        ),
        UniqueConstraint("repository_id", "branch"),
        Index(None, "tenant_id", "id"),
        Index(None, "tenant_id", "stage", "id"),
        Index(None, "repository_id", "id"),
        Index(
            "tasks_open_idx",
            "repository_id",
            text("priority DESC"),
            "id",
            postgresql_where=text("ended_at IS NULL"),
        ),
        Index(None, "sandbox_id", postgresql_where=text("sandbox_id IS NOT NULL")),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    repository_id: Mapped[Id] = mapped_column(ForeignKey(Repository.id))
    key_id: Mapped[Id | None]  # the key that created it; None: a webhook
    title: Mapped[str]
    instructions: Mapped[str]
    source: Mapped[str]
    source_ref: Mapped[str | None]  # number of the issue, comment, or failed commit
    source_url: Mapped[str | None]
    requester: Mapped[str | None]  # their login at the forge
    base_ref: Mapped[str]
    base_sha: Mapped[str | None]
    branch: Mapped[str | None]
    directory: Mapped[str]  # of the checkout in its sandboxes
    agent: Mapped[str | None]  # None: `agent_command`
    agent_command: Mapped[str | None]
    model: Mapped[str | None]
    pull_request: Mapped[str] = mapped_column(server_default=PullRequestWish.DRAFT)
    settings: Mapped[Document]  # the repository's at the creation, and those of the request
    labels: Mapped[Document] = mapped_column("metadata")
    priority: Mapped[Count]

    stage: Mapped[str] = mapped_column(server_default=Stage.QUEUED)
    stage_reason: Mapped[str | None]
    stage_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    stage_before: Mapped[str | None]  # to return to after waiting-for-user
    awaits: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    target: Mapped[str] = mapped_column(server_default=TaskTarget.FINISHED)
    # The stage it ends in, once its work is saved and its sandbox deleted.
    outcome: Mapped[str | None]
    outcome_at: Mapped[datetime | None]
    # Counts the commits of the reconciler, and fences late ones.
    generation: Mapped[Count]
    sandboxes: Mapped[Count]  # how many were created for it
    sandbox_id: Mapped[Id | None]  # not a foreign key: the task outlives it
    sandbox_ready: Mapped[Switch]  # checked out, and set up
    attempts: Mapped[Count]  # how many agents work side by side; 0: one, in the task's own sandbox
    chosen_attempt: Mapped[int | None]
    choice: Mapped[str] = mapped_column(server_default=ChoiceBy.AUTOMATIC)  # who chooses one
    wanted_attempt: Mapped[int | None]  # what an operator has chosen, before it takes effect
    attempts_snapshot: Mapped[Id | None]  # of the prepared sandbox, until one is chosen
    approved: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))  # heads to publish
    head_sha: Mapped[str | None]  # of the work, as of the last run
    published_sha: Mapped[str | None]
    pushed_shas: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    report: Mapped[Document]  # title, body and summary, as the agent reported them
    session_id: Mapped[str | None]  # the agent's, to continue it
    spent_usd: Mapped[float] = mapped_column(server_default=text("0"))
    budget_usd: Mapped[float | None]
    runs: Mapped[Count]
    fixes_since_green: Mapped[Count]
    max_runs: Mapped[int] = mapped_column(server_default=text("10"))
    deadline_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    archived_at: Mapped[datetime | None]


class TaskAttempt(Row):
    """One of several attempts at a task: an agent in a sandbox of its own, which is a copy of the prepared one."""

    __tablename__ = "task_attempts"
    __table_args__ = (
        one_of("state", *AttemptState),
        Index(None, "sandbox_id", postgresql_where=text("sandbox_id IS NOT NULL")),
    )

    task_id: Mapped[Id] = mapped_column(ForeignKey(Task.id, ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    agent: Mapped[str | None]  # None: `agent_command`
    agent_command: Mapped[str | None]
    model: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default=AttemptState.QUEUED)
    state_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    reason: Mapped[str | None]
    # What a person is asked if it is chosen; None: it needs nobody.
    awaits: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    generation: Mapped[Count]  # counts its commits, and fences late ones
    sandboxes: Mapped[Count]  # how many were created for it
    sandbox_id: Mapped[Id | None]
    sandbox_ready: Mapped[Switch]  # its saved work is restored
    runs: Mapped[Count]
    head_sha: Mapped[str | None]
    checks: Mapped[str | None]  # outcome of the repository's checks
    report: Mapped[Document]
    session_id: Mapped[str | None]
    spent_usd: Mapped[float] = mapped_column(server_default=text("0"))
    files: Mapped[Count]  # changed from the base, measured when one is chosen
    added: Mapped[Count]
    removed: Mapped[Count]
    ended_at: Mapped[datetime | None]  # chosen, or its sandbox is deleted


class TaskMessage(Row):
    """A message to the agent of a task: instructions, comments, reviews, failed checks."""

    __tablename__ = "task_messages"
    __table_args__ = (
        one_of("origin", *MessageOrigin),
        # A webhook that is delivered twice makes one message.
        UniqueConstraint("task_id", "origin", "origin_ref"),
        Index(None, "task_id", "id"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    task_id: Mapped[Id] = mapped_column(ForeignKey(Task.id, ondelete="CASCADE"))
    origin: Mapped[str]
    origin_ref: Mapped[str | None]
    author: Mapped[str | None]
    text: Mapped[str]
    data: Mapped[Document]  # threads to answer, jobs that failed
    run_number: Mapped[int | None]  # the run that received it; None: not yet


class TaskRun(Row):
    """One run of an agent, of the setup or of the checks of a task."""

    __tablename__ = "task_runs"
    __table_args__ = (
        one_of("kind", *RunKind),
        CheckConstraint(
            "outcome IN (" + ", ".join(f"'{outcome}'" for outcome in RunOutcome) + ")",
            name="outcome",
        ),
        UniqueConstraint("task_id", "kind", "cause", "cause_ref"),
        # One at a time, in each attempt.
        Index(
            "task_runs_open_idx",
            "task_id",
            "attempt",
            unique=True,
            postgresql_where=text("ended_at IS NULL"),
        ),
        Index(None, "command_id"),
    )

    task_id: Mapped[Id] = mapped_column(ForeignKey(Task.id, ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[Count]  # 0: of the task itself
    told: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))  # ids; of attempts only
    kind: Mapped[str]
    cause: Mapped[
        str
    ]  # why: `created`, `ci`, `review`, `message`, `conflict`, `checks`, `retry`, …
    cause_ref: Mapped[str]  # what exactly: no cause starts two runs
    sandbox_id: Mapped[Id]
    command_id: Mapped[Id | None]
    head_before: Mapped[str | None]
    head_after: Mapped[str | None]
    outcome: Mapped[str | None]
    summary: Mapped[str | None]
    cost_usd: Mapped[float | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class PullRequest(Row):
    """A pull request, as its forge last described it; older descriptions never replace newer ones."""

    __tablename__ = "pull_requests"
    __table_args__ = (
        one_of("lifecycle", *PullLifecycle),
        Index(None, "task_id", postgresql_where=text("task_id IS NOT NULL")),
        Index(None, "looked_at", postgresql_where=text("lifecycle = 'open'")),
    )

    repository_id: Mapped[Id] = mapped_column(ForeignKey(Repository.id), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    task_id: Mapped[Id | None] = mapped_column(ForeignKey(Task.id, ondelete="SET NULL"))
    url: Mapped[str]
    lifecycle: Mapped[str]
    draft: Mapped[Switch]
    head_ref: Mapped[str]
    head_sha: Mapped[str]
    base_ref: Mapped[str]
    mergeable: Mapped[bool | None]
    review: Mapped[str | None]
    checks: Mapped[str | None]  # `pending`, `success`, `failure`
    provider_updated_at: Mapped[datetime]
    validator: Mapped[str | None]
    checks_validator: Mapped[str | None]
    green_at: Mapped[datetime | None]  # when its checks had last passed
    remarks_at: Mapped[datetime | None]  # up to here reviews and comments were read
    looked_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ForgeCheck(Row):
    """A check of a commit at the forge."""

    __tablename__ = "forge_checks"

    repository_id: Mapped[Id] = mapped_column(ForeignKey(Repository.id), primary_key=True)
    sha: Mapped[str] = mapped_column(primary_key=True)
    external_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    origin: Mapped[str]
    is_done: Mapped[Switch]
    conclusion: Mapped[str | None]
    url: Mapped[str | None]
    seen_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ForgeWrite(Row):
    """A write to a forge that is due: looked up before it is done, so that a crash repeats nothing."""

    __tablename__ = "forge_writes"
    __table_args__ = (
        one_of(
            "kind",
            *("push", "pull", "comment", "reply", "label", "reviewers", "delete-branch", "rerun"),
        ),
        UniqueConstraint("task_id", "kind", "key"),
        Index(
            "forge_writes_repository_idx",
            "repository_id",
            "kind",
            "key",
            unique=True,
            postgresql_where=text("task_id IS NULL"),
        ),
        Index(None, "forge_id", "id", postgresql_where=text("done_at IS NULL")),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    forge_id: Mapped[Id] = mapped_column(ForeignKey("forges.id"))
    repository_id: Mapped[Id] = mapped_column(ForeignKey(Repository.id))
    # None: it belongs to the repository, and outlives its tasks.
    task_id: Mapped[Id | None] = mapped_column(ForeignKey(Task.id, ondelete="CASCADE"))
    kind: Mapped[str]
    key: Mapped[str]
    payload: Mapped[Document]
    result: Mapped[Document]
    attempted_at: Mapped[datetime | None]  # it may have been written: look it up first
    done_at: Mapped[datetime | None]
    error: Mapped[str | None]
