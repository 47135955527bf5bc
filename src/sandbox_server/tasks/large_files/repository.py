from collections.abc import Collection, Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import TaskLargeFilePart, TaskSave


class LargeFileRepository:
    """The SQL of the large files of tasks."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_stored(self, task_id: str, oids: Collection[str]) -> set[str]:
        found = await self._session.scalars(
            select(TaskLargeFilePart.oid)
            .where(TaskLargeFilePart.task_id == task_id, TaskLargeFilePart.oid.in_(oids))
            .distinct()
        )
        return {*found}

    async def list_part_ids(self, task_id: str, oid: str) -> Sequence[str]:
        own = select(TaskLargeFilePart.id).where(
            TaskLargeFilePart.task_id == task_id, TaskLargeFilePart.oid == oid
        )
        return (await self._session.scalars(own.order_by(TaskLargeFilePart.part))).all()

    async def get_part(self, part_id: str) -> TaskLargeFilePart:
        return await self._session.get_one(TaskLargeFilePart, part_id)

    async def add(self, parts: Sequence[TaskLargeFilePart]) -> None:
        self._session.add_all(parts)
        await self._session.flush()

    async def remove_unused(self, task_id: str) -> None:
        """Remove what no save of a task points to any more."""
        used = select(func.unnest(TaskSave.large_files)).where(TaskSave.task_id == task_id)
        await self._session.execute(
            delete(TaskLargeFilePart).where(
                TaskLargeFilePart.task_id == task_id, TaskLargeFilePart.oid.not_in(used)
            )
        )
