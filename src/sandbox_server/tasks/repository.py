from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import (
    PullRequest,
    Repository,
    Task,
    TaskAttempt,
    TaskMessage,
    TaskRun,
    TaskSave,
)
from sandbox_server.domain.errors import TaskNotFound
from sandbox_server.domain.tasks.stages import ACTIVE, AttemptState, Stage


@dataclass(frozen=True, kw_only=True)
class TaskFilter:
    stages: frozenset[str] = frozenset()
    repository_id: str | None = None
    archived: bool = False


@dataclass(frozen=True)
class TaskEntry:
    """A task with the name of its repository."""

    row: Task
    repository: str


class TaskRepository:
    """The SQL of tasks themselves."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: Task) -> None:
        self._session.add(row)
        await self._session.flush()

    async def get(self, task_id: str, *, tenant_id: str) -> TaskEntry:
        found = _of(tenant_id).where(Task.id == task_id)
        entry = (await self._session.execute(found)).one_or_none()
        if entry is None:
            raise TaskNotFound(task_id)
        return TaskEntry(*entry)

    async def find(self, task_id: str) -> tuple[Task, datetime] | None:
        """Find a task of any tenant, with the database's clock."""
        found = select(Task, func.clock_timestamp()).where(Task.id == task_id)
        row = (await self._session.execute(found)).one_or_none()
        return None if row is None else (row[0], row[1])

    async def lock(self, task_id: str, *, tenant_id: str | None = None) -> Task:
        """Hold the row until the transaction ends."""
        locked = select(Task).where(Task.id == task_id).with_for_update()
        if tenant_id is not None:
            locked = locked.where(Task.tenant_id == tenant_id)
        row = await self._session.scalar(locked.execution_options(populate_existing=True))
        if row is None:
            raise TaskNotFound(task_id)
        return row

    async def clock(self) -> datetime:
        now: datetime = (await self._session.execute(select(func.clock_timestamp()))).scalar_one()
        return now

    async def find_open(self, repository_id: str, source: str, source_ref: str) -> Task | None:
        """Find the open task of an issue, comment or commit."""
        return await self._session.scalar(
            select(Task).where(
                Task.repository_id == repository_id,
                Task.source == source,
                Task.source_ref == source_ref,
                Task.ended_at.is_(None),
            )
        )

    async def find_of_sandbox(self, sandbox_id: str) -> Task | None:
        """Find the open task that works in a sandbox."""
        return await self._session.scalar(
            select(Task).where(Task.sandbox_id == sandbox_id, Task.ended_at.is_(None))
        )

    async def find_of_branch(self, repository_id: str, branch: str) -> Task | None:
        return await self._session.scalar(
            select(Task).where(Task.repository_id == repository_id, Task.branch == branch)
        )

    async def list_page(
        self, tenant_id: str, wanted: TaskFilter, *, limit: int, before: str | None = None
    ) -> Sequence[TaskEntry]:
        """List tasks, newest first."""
        query = _of(tenant_id)
        if wanted.stages:
            query = query.where(Task.stage.in_(wanted.stages))
        if wanted.repository_id is not None:
            query = query.where(Task.repository_id == wanted.repository_id)
        if not wanted.archived:
            query = query.where(Task.archived_at.is_(None))
        if before is not None:
            query = query.where(Task.id < before)
        found = await self._session.execute(query.order_by(Task.id.desc()).limit(limit))
        return [TaskEntry(*row) for row in found]

    async def lock_places(self, repository_id: str) -> None:
        """Hold the places of a repository until the transaction ends."""
        name = f"task-places/{repository_id}"
        await self._session.execute(
            select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0)))
        )

    async def has_place(self, task: Task, *, max_open: int) -> bool:
        """Return whether a queued task is next in line for a free place; call `lock_places` first."""
        active = select(func.count()).where(
            Task.repository_id == task.repository_id, Task.stage.in_(ACTIVE)
        )
        earlier = _queued(task.repository_id).where(
            (Task.priority > task.priority)
            | ((Task.priority == task.priority) & (Task.id < task.id))
        )
        ahead = select(func.count()).select_from(earlier.subquery())
        taken = await self._session.scalar(active) or 0
        return taken + (await self._session.scalar(ahead) or 0) < max_open

    async def list_queued(self, repository_id: str, *, limit: int) -> Sequence[str]:
        """List the ids of the tasks that wait for a place, in their order."""
        order = (Task.priority.desc(), Task.id)
        found = _queued(repository_id).order_by(*order).limit(limit)
        return (await self._session.scalars(found)).all()

    async def spent_since(self, repository_id: str, age: timedelta) -> float:
        """Sum the cost of a repository's tasks created within `age`."""
        since = func.clock_timestamp() - age
        total = select(func.sum(Task.spent_usd)).where(
            Task.repository_id == repository_id, Task.created_at > since
        )
        return float(await self._session.scalar(total) or 0)

    async def has_untold(self, task_id: str, *, since: datetime | None = None) -> bool:
        """Whether there are messages that no run was told, of an instant on."""
        own = select(TaskMessage.id).where(
            TaskMessage.task_id == task_id, TaskMessage.run_number.is_(None)
        )
        if since is not None:
            own = own.where(TaskMessage.created_at > since)
        return await self._session.scalar(own.limit(1)) is not None

    async def add_attempts(self, attempts: Sequence[TaskAttempt]) -> None:
        self._session.add_all(attempts)
        await self._session.flush()

    async def get_attempt(self, task_id: str, number: int) -> TaskAttempt:
        return await self._session.get_one(TaskAttempt, (task_id, number))

    async def list_attempts(self, task_id: str) -> Sequence[TaskAttempt]:
        own = select(TaskAttempt).where(TaskAttempt.task_id == task_id)
        return (await self._session.scalars(own.order_by(TaskAttempt.number))).all()

    async def find_attempt_of_sandbox(self, sandbox_id: str) -> tuple[Task, int] | None:
        """Find the open attempt that works in a sandbox, with its task."""
        found = select(Task, TaskAttempt.number).join(Task, Task.id == TaskAttempt.task_id)
        row = (
            await self._session.execute(
                found.where(
                    TaskAttempt.sandbox_id == sandbox_id,
                    TaskAttempt.sandbox_ready,
                    TaskAttempt.ended_at.is_(None),
                )
            )
        ).one_or_none()
        return None if row is None else (row[0], row[1])

    async def reopen_attempts(self, task_id: str) -> None:
        """Have all attempts begin again, with what was saved of each."""
        await self._session.execute(
            update(TaskAttempt)
            .where(TaskAttempt.task_id == task_id)
            .values(
                state=AttemptState.QUEUED,
                state_at=func.clock_timestamp(),
                reason=None,
                awaits=None,
                checks=None,
                generation=TaskAttempt.generation + 1,
                sandbox_id=None,
                sandbox_ready=False,
                ended_at=None,
            )
        )

    async def find_pull(self, task_id: str) -> PullRequest | None:
        """Find the newest pull request of a task."""
        own = select(PullRequest).where(PullRequest.task_id == task_id)
        return await self._session.scalar(own.order_by(PullRequest.number.desc()).limit(1))


def of_attempt(table: type[TaskRun | TaskSave], task_id: str, attempt: int) -> ColumnElement[bool]:
    """Select the rows of an attempt; 0: the task's own, to which those of the chosen attempt belong."""
    own = table.attempt == attempt
    if not attempt:
        chosen = select(Task.chosen_attempt).where(Task.id == task_id).scalar_subquery()
        own = or_(own, table.attempt == chosen)
    return (table.task_id == task_id) & own


def _of(tenant_id: str) -> Select[*tuple[Any, ...]]:
    return (
        select(Task, Repository.full_name)
        .join(Repository, Repository.id == Task.repository_id)
        .where(Task.tenant_id == tenant_id)
    )


def _queued(repository_id: str) -> Select[Any]:
    return select(Task.id).where(
        Task.repository_id == repository_id,
        Task.stage == Stage.QUEUED,
        Task.outcome.is_(None),
    )
