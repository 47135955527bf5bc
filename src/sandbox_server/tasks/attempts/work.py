from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import inspect

from sandbox_server.db.models import Repository, Task, TaskAttempt
from sandbox_server.domain.tasks.stages import AttemptState, TaskTarget
from sandbox_server.tasks.stages.work import TaskWork

_OWN = (
    *("sandbox_id", "sandbox_ready", "sandboxes", "agent", "agent_command", "model"),
    *("head_sha", "report", "session_id"),
)
"""Columns of a task that each of its attempts has for itself."""


@dataclass(frozen=True)
class AttemptWork(TaskWork):
    """An attempt as it was read at the beginning of a step; `task` is the task as this attempt sees it."""

    attempt: TaskAttempt

    @classmethod
    def of(
        cls, task: Task, attempt: TaskAttempt, repository: Repository, now: datetime
    ) -> "AttemptWork":
        own = {name: getattr(attempt, name) for name in _OWN}
        columns = inspect(Task).column_attrs
        shared = {column.key: getattr(task, column.key) for column in columns}
        return cls(Task(**{**shared, **own}), repository, now, attempt)

    @property
    def attempt_number(self) -> int:
        return self.attempt.number

    @property
    def is_first_run(self) -> bool:
        return self.attempt.runs <= 1

    @property
    def in_stage_for(self) -> timedelta:
        return self.now - self.attempt.state_at

    @property
    def is_leaving(self) -> bool:
        """Whether all that is left to do is to save the work and to delete the sandbox."""
        task = self.task
        is_ending = task.outcome is not None or task.target == TaskTarget.CANCELLED
        return is_ending or self.attempt.state == AttemptState.NOT_CHOSEN
