from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Repository, Task, TaskSave


@dataclass(frozen=True)
class OpenWork:
    """An open task with its latest save."""

    task: Task
    save: TaskSave
    repository: Repository


class OpenWorkRepository:
    """The SQL of the work that open tasks have saved."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_latest(
        self, tenant_id: str, *, repository_id: str | None = None, limit: int
    ) -> Sequence[OpenWork]:
        """List the open tasks of a tenant that have saved changes, the latest save first."""
        # Attempts of one task are not compared: one of them is chosen.
        is_own = TaskSave.attempt.in_([0, func.coalesce(Task.chosen_attempt, 0)])
        last = select(func.max(TaskSave.number)).where(TaskSave.task_id == Task.id, is_own)
        found = (
            select(Task, TaskSave, Repository)
            .join(TaskSave, TaskSave.task_id == Task.id)
            .join(Repository, Repository.id == Task.repository_id)
            .where(
                Task.tenant_id == tenant_id,
                Task.ended_at.is_(None),
                Task.outcome.is_(None),
                TaskSave.number == last.correlate(Task).scalar_subquery(),
                TaskSave.base_sha.is_not(None),
                TaskSave.files > 0,
            )
            .order_by(TaskSave.created_at.desc(), Task.id)
            .limit(limit)
        )
        if repository_id is not None:
            found = found.where(Task.repository_id == repository_id)
        return [OpenWork(*row) for row in await self._session.execute(found)]
