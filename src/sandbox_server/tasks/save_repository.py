from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import TaskRun, TaskSave, TaskSavePart
from sandbox_server.domain.errors import SaveNotFound
from sandbox_server.domain.tasks.stages import RunKind
from sandbox_server.tasks.large_files.repository import LargeFileRepository
from sandbox_server.tasks.repository import of_attempt


class TaskSaveRepository:
    """The SQL of saves."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, task_id: str, number: int) -> TaskSave:
        row = await self._session.get(TaskSave, (task_id, number))
        if row is None:
            raise SaveNotFound(str(number))
        return row

    async def find_last(self, task_id: str, *, attempt: int = 0) -> TaskSave | None:
        """Find the last save of the task itself, or of one of its attempts."""
        own = select(TaskSave).where(of_attempt(TaskSave, task_id, attempt))
        return await self._session.scalar(own.order_by(TaskSave.number.desc()).limit(1))

    async def find_of_run(self, task_id: str, run_number: int) -> TaskSave | None:
        """Find the last save of a run."""
        own = select(TaskSave).where(TaskSave.task_id == task_id, TaskSave.run_number == run_number)
        return await self._session.scalar(own.order_by(TaskSave.number.desc()).limit(1))

    async def list_page(self, task_id: str, *, after: int, limit: int) -> Sequence[TaskSave]:
        """List saves, oldest first, after a number."""
        own = select(TaskSave).where(TaskSave.task_id == task_id, TaskSave.number > after)
        return (await self._session.scalars(own.order_by(TaskSave.number).limit(limit))).all()

    async def add(self, row: TaskSave, parts: Sequence[TaskSavePart]) -> None:
        self._session.add(row)
        await self._session.flush()
        self._session.add_all(parts)
        await self._session.flush()

    async def next_number(self, task_id: str) -> int:
        last = select(func.max(TaskSave.number)).where(TaskSave.task_id == task_id)
        return (await self._session.scalar(last) or 0) + 1

    async def list_parts(self, task_id: str, number: int) -> Sequence[TaskSavePart]:
        own = select(TaskSavePart).where(
            TaskSavePart.task_id == task_id, TaskSavePart.number == number
        )
        return (await self._session.scalars(own.order_by(TaskSavePart.part))).all()

    async def remove_old(self, task_id: str, *, keep: int) -> None:
        """Remove all but the last `keep` saves and the last one of each run."""
        own = select(TaskSave.number).where(TaskSave.task_id == task_id)
        last = own.order_by(TaskSave.number.desc()).limit(keep)
        of_runs = (
            select(func.max(TaskSave.number))
            .where(TaskSave.task_id == task_id, TaskSave.run_number.is_not(None))
            .group_by(TaskSave.run_number)
        )
        await self._session.execute(
            delete(TaskSave).where(
                TaskSave.task_id == task_id,
                TaskSave.number.not_in(last),
                TaskSave.number.not_in(of_runs),
            )
        )
        await LargeFileRepository(self._session).remove_unused(task_id)

    async def find_current_run(self, task_id: str, *, attempt: int = 0) -> int | None:
        """Find the number of the agent's current or last run, to which new work belongs."""
        own = select(func.max(TaskRun.number)).where(
            of_attempt(TaskRun, task_id, attempt), TaskRun.kind == RunKind.AGENT
        )
        return await self._session.scalar(own)

    async def list_open_runs(self, task_id: str) -> Sequence[TaskRun]:
        """List the runs that have not ended: one, or one of each attempt."""
        own = select(TaskRun).where(TaskRun.task_id == task_id, TaskRun.ended_at.is_(None))
        return (await self._session.scalars(own)).all()
