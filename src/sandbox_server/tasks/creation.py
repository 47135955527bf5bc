from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Repository, Task, TaskAttempt
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.events import Actor, Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.events import TaskCreated
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import (
    ChoiceBy,
    MessageOrigin,
    PullRequestWish,
    Stage,
    TaskSource,
    TaskTarget,
)
from sandbox_server.jobs.kinds import TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.prepared import directory_of
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.transitions import TaskMove, apply_move

_LONGEST_TITLE = 200


@dataclass(frozen=True, kw_only=True)
class AttemptRequest:
    """The agent of an attempt; None leaves it to the repository's settings."""

    agent: str | None = None
    command: str | None = None
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A requested task; None leaves a value to the repository's settings."""

    source: TaskSource = TaskSource.TEXT
    source_ref: str | None = None
    source_url: str | None = None
    requester: str | None = None
    title: str | None = None
    instructions: str = ""
    base: str | None = None
    agent: str | None = None
    command: str | None = None
    model: str | None = None
    attempts: Sequence[AttemptRequest] = ()
    """Agents that work side by side instead of one."""
    choice: ChoiceBy = ChoiceBy.AUTOMATIC
    pull_request: str | None = None
    budget_usd: float | None = None
    max_runs: int | None = None
    max_fixes: int | None = None
    deadline: timedelta | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    """Data of the first message: threads to answer, jobs that failed."""


def new_task(repository: Repository, wanted: TaskRequest, *, caller: Caller | None = None) -> Task:
    """Describe the task of a request; what it leaves open comes from the repository's settings."""
    task_id = new_id()
    stored = {**repository.settings, **_overrides(wanted)}
    settings = RepositorySettings.of(stored)
    if wanted.attempts and wanted.pull_request == PullRequestWish.COMMENT:
        raise InvalidRequest("Send attempts or `pull_request: comment`, not both.")
    if len(wanted.attempts) > settings.max_runs:
        raise InvalidRequest(
            f"{len(wanted.attempts)} attempts need as many runs; at most {settings.max_runs} are allowed."
        )
    if wanted.choice is ChoiceBy.OPERATOR and not wanted.attempts:
        raise InvalidRequest("`choice: operator` is about attempts; send them too.")
    agent, command = _agent_of(settings, wanted.agent, wanted.command)
    default = PullRequestWish.DRAFT if settings.draft else PullRequestWish.READY
    return Task(
        id=task_id,
        tenant_id=repository.tenant_id,
        repository_id=repository.id,
        key_id=None if caller is None else caller.key_id,
        title=wanted.title or _title_of(wanted),
        instructions=wanted.instructions,
        source=wanted.source,
        source_ref=wanted.source_ref,
        source_url=wanted.source_url,
        requester=wanted.requester,
        base_ref=wanted.base or repository.default_branch,
        branch=f"{settings.branch_prefix}{task_id}",
        directory=directory_of(repository),
        agent=agent,
        agent_command=command,
        model=wanted.model or settings.model,
        choice=wanted.choice,
        pull_request=wanted.pull_request or default,
        settings=stored,
        labels=dict(wanted.metadata),
        priority=wanted.priority if caller is None else min(wanted.priority, caller.max_priority),
        stage=Stage.QUEUED,
        target=TaskTarget.FINISHED,
        budget_usd=settings.budget_usd,
        max_runs=settings.max_runs,
    )


def _agent_of(
    settings: RepositorySettings, agent: str | None, command: str | None
) -> tuple[str | None, str | None]:
    """Choose the agent or the command; the repository's unless one is requested."""
    if command is not None or (agent is None and settings.agent_command is not None):
        return None, command or settings.agent_command
    return agent or settings.agent, None


def _new_attempts(task: Task, wanted: Sequence[AttemptRequest]) -> Sequence[TaskAttempt]:
    settings, attempts = RepositorySettings.of(task.settings), []
    for number, one in enumerate(wanted, 1):
        agent, command = _agent_of(settings, one.agent, one.command)
        own = settings.model if agent == settings.agent else None  # models belong to their agent
        attempts.append(
            TaskAttempt(
                task_id=task.id,
                number=number,
                agent=agent,
                agent_command=command,
                model=one.model or own,
            )
        )
    return attempts


def _overrides(wanted: TaskRequest) -> dict[str, Any]:
    given = {
        "budget_usd": wanted.budget_usd,
        "max_runs": wanted.max_runs,
        "max_fixes": wanted.max_fixes,
        "deadline_s": None if wanted.deadline is None else wanted.deadline.total_seconds(),
    }
    return {name: value for name, value in given.items() if value is not None}


def _title_of(wanted: TaskRequest) -> str:
    """Use the first line of the instructions; the title of an issue is known only once it was read."""
    lines = wanted.instructions.strip().splitlines()
    return lines[0][:_LONGEST_TITLE] if lines else f"Issue #{wanted.source_ref}"


async def add_task(
    session: AsyncSession,
    repository: Repository,
    task: Task,
    wanted: TaskRequest,
    *,
    actor: Actor,
    cause: Cause,
) -> None:
    """Insert a task with its first message, its job and its event."""
    tasks = TaskRepository(session)
    task.deadline_at = await tasks.clock() + RepositorySettings.of(task.settings).deadline
    attempts = _new_attempts(task, wanted.attempts)
    if attempts:  # the template of the sandbox has agents if any attempt needs them
        lead = next((each for each in attempts if each.agent), attempts[0])
        task.attempts, task.agent = len(attempts), lead.agent
        task.agent_command, task.model = lead.agent_command, lead.model
    await tasks.add(task)
    await tasks.add_attempts(attempts)
    await TaskHistoryRepository(session).add_message(
        task.id,
        origin=MessageOrigin.SERVER,
        origin_ref="created",
        text=wanted.instructions,
        author=wanted.requester or task.key_id,
        data=wanted.data,
    )
    await JobRepository(session).due(TASK, task.id)
    created = TaskCreated(
        task_id=task.id,
        cause=cause,
        actor=actor,
        reason=f"Created for {repository.full_name} ({task.source}).",
        title=task.title,
        repository=repository.full_name,
        source=task.source,
    )
    await apply_move(session, task, TaskMove(events=[created]))
