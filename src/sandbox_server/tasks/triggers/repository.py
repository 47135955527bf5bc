from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Task, TaskMessage
from sandbox_server.domain.tasks.stages import Stage, TaskSource

BREAKER = 3
"""Triggered tasks that may fail in a row before the triggers of a repository pause."""

_TRIGGERED = (TaskSource.ISSUE, TaskSource.MENTION, TaskSource.CI_FIX)


class TriggerRepository:
    """Queries about the tasks that webhooks started."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_open(
        self, repository_id: str, source: TaskSource, source_ref: str
    ) -> Task | None:
        return await self._session.scalar(
            select(Task).where(
                Task.repository_id == repository_id,
                Task.source == source,
                Task.source_ref == source_ref,
                Task.ended_at.is_(None),
            )
        )

    async def had_task_since(self, repository_id: str, number: str, since: datetime) -> bool:
        """Return whether a task of an issue was open at an instant or later."""
        found = select(Task.id).where(
            Task.repository_id == repository_id,
            Task.source == TaskSource.ISSUE,
            Task.source_ref == number,
            or_(Task.ended_at.is_(None), Task.ended_at >= since),
        )
        return await self._session.scalar(found.limit(1)) is not None

    async def has_acted_on(self, repository_id: str, delivery_ref: str) -> bool:
        """Return whether a delivery has created a task, which may have ended since."""
        found = (
            select(Task.id)
            .join(TaskMessage, TaskMessage.task_id == Task.id)
            .where(
                Task.repository_id == repository_id,
                TaskMessage.data["trigger"].astext == delivery_ref,
            )
        )
        return await self._session.scalar(found.limit(1)) is not None

    async def is_branch_of_task(self, repository_id: str, branch: str) -> bool:
        found = select(Task.id).where(Task.repository_id == repository_id, Task.branch == branch)
        return await self._session.scalar(found) is not None

    async def list_failed_in_a_row(self, repository_id: str) -> Sequence[Task]:
        """List the last triggered tasks if all of them failed, and as many as trip the breaker."""
        last = (
            select(Task)
            .where(
                Task.repository_id == repository_id,
                Task.source.in_(_TRIGGERED),
                Task.ended_at.is_not(None),
            )
            .order_by(Task.ended_at.desc())
            .limit(BREAKER)
        )
        tasks = (await self._session.scalars(last)).all()
        all_failed = all(task.stage == Stage.FAILED for task in tasks)
        return tasks if len(tasks) == BREAKER and all_failed else []
