from sandbox_client.models import (
    TaskAttemptRead,
    TaskCheckRead,
    TaskDiff,
    TaskFileChange,
    TaskLimits,
    TaskMessageRead,
    TaskPullRead,
    TaskRead,
    TaskRunRead,
    TaskSaveRead,
    TaskWait,
)
from sandbox_server.db.models import (
    ForgeCheck,
    PullRequest,
    TaskAttempt,
    TaskMessage,
    TaskRun,
    TaskSave,
)
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import Stage, state_of_task
from sandbox_server.tasks.history import Difference
from sandbox_server.tasks.quotes import full_text
from sandbox_server.tasks.repository import TaskEntry

_SAME = (
    *("id", "repository_id", "title", "instructions", "source", "source_ref", "source_url"),
    *("requester", "base_sha", "branch", "agent", "model", "pull_request", "stage"),
    *("stage_reason", "stage_at", "sandbox_id", "head_sha", "published_sha"),
    *("attempts", "choice", "chosen_attempt", "priority", "created_at", "ended_at", "archived_at"),
)


def view_task(entry: TaskEntry) -> TaskRead:
    row = entry.row
    return TaskRead(
        **{name: getattr(row, name) for name in _SAME},
        repository=entry.repository,
        base=row.base_ref,
        command=row.agent_command,
        state=state_of_task(Stage(row.stage)),
        waits_for=None if row.awaits is None else TaskWait.model_validate(row.awaits),
        summary=row.report.get("summary"),
        limits=_limits(entry),
        metadata=row.labels,
    )


def _limits(entry: TaskEntry) -> TaskLimits:
    row = entry.row
    return TaskLimits(
        usd=row.budget_usd,
        spent_usd=row.spent_usd,
        runs=row.max_runs,
        used_runs=row.runs,
        fixes=RepositorySettings.of(row.settings).max_fixes,
        fixes_since_green=row.fixes_since_green,
        deadline_at=row.deadline_at,
    )


def view_message(row: TaskMessage) -> TaskMessageRead:
    return TaskMessageRead(
        id=row.id,
        origin=row.origin,
        author=row.author,
        text=full_text(row),
        run=row.run_number,
        created_at=row.created_at,
    )


def view_run(row: TaskRun) -> TaskRunRead:
    fields = {name: getattr(row, name) for name in TaskRunRead.model_fields if name != "attempt"}
    return TaskRunRead(**fields, attempt=row.attempt or None)


def view_attempt(row: TaskAttempt) -> TaskAttemptRead:
    same = {*TaskAttemptRead.model_fields} - {"command", "cost_usd", "waits_for"}
    return TaskAttemptRead(
        **{name: getattr(row, name) for name in same},
        command=row.agent_command,
        cost_usd=row.spent_usd,
        waits_for=None if row.awaits is None else TaskWait.model_validate(row.awaits),
    )


def view_save(row: TaskSave) -> TaskSaveRead:
    same = {*TaskSaveRead.model_fields} - {"run", "attempt"}
    fields = {name: getattr(row, name) for name in same}
    return TaskSaveRead(**fields, run=row.run_number, attempt=row.attempt or None)


def view_pull(row: PullRequest) -> TaskPullRead:
    same = ("number", "url", "lifecycle", "draft", "head_sha", "mergeable", "review", "checks")
    return TaskPullRead(
        **{name: getattr(row, name) for name in same},
        base=row.base_ref,
        updated_at=row.provider_updated_at,
    )


def view_check(row: ForgeCheck) -> TaskCheckRead:
    return TaskCheckRead.model_validate(row, from_attributes=True)


def view_diff(difference: Difference) -> TaskDiff:
    return TaskDiff(
        from_sha=difference.old,
        to_sha=difference.new,
        files=[TaskFileChange(path=file.path, status=file.status) for file in difference.files],
        diff=difference.text.text,
        is_cut=difference.text.truncated,
    )
