from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import ForgeCheck, TaskMessage, TaskRun
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import CheckConclusion, CheckFacts
from sandbox_server.domain.tasks.stages import RunKind
from sandbox_server.tasks.repository import of_attempt


class TaskHistoryRepository:
    """The SQL of messages and runs of tasks."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add_message(
        self,
        task_id: str,
        *,
        origin: str,
        text: str,
        origin_ref: str | None = None,
        author: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Add a message and return its id; None if this origin has added it before."""
        return await self._session.scalar(
            insert(TaskMessage)
            .values(
                id=new_id(),
                task_id=task_id,
                origin=origin,
                origin_ref=origin_ref,
                author=author,
                text=text,
                data=dict(data or {}),
            )
            .on_conflict_do_nothing()
            .returning(TaskMessage.id)
        )

    async def list_messages(
        self, task_id: str, *, after: str = "", limit: int
    ) -> Sequence[TaskMessage]:
        """List messages, oldest first, after an id."""
        own = select(TaskMessage).where(TaskMessage.task_id == task_id, TaskMessage.id > after)
        return (await self._session.scalars(own.order_by(TaskMessage.id).limit(limit))).all()

    async def list_untold(self, task_id: str, *, attempt: int = 0) -> Sequence[TaskMessage]:
        """List the messages that no run was told, or none of an attempt, oldest first."""
        own = select(TaskMessage).where(
            TaskMessage.task_id == task_id, TaskMessage.run_number.is_(None)
        )
        if attempt:
            told = select(func.unnest(TaskRun.told)).where(of_attempt(TaskRun, task_id, attempt))
            own = own.where(TaskMessage.id.not_in(told))
        return (await self._session.scalars(own.order_by(TaskMessage.id))).all()

    async def list_told(self, task_id: str, run_number: int) -> Sequence[TaskMessage]:
        """List the messages that a run was told, oldest first."""
        own = select(TaskMessage).where(
            TaskMessage.task_id == task_id, TaskMessage.run_number == run_number
        )
        return (await self._session.scalars(own.order_by(TaskMessage.id))).all()

    async def get_messages(self, message_ids: Collection[str]) -> Sequence[TaskMessage]:
        """Read messages by their ids, oldest first."""
        own = select(TaskMessage).where(TaskMessage.id.in_(message_ids))
        return (await self._session.scalars(own.order_by(TaskMessage.id))).all()

    async def mark_told(self, message_ids: Collection[str], run_number: int) -> None:
        told = update(TaskMessage).where(TaskMessage.id.in_(message_ids))
        await self._session.execute(told.values(run_number=run_number))

    async def add_run(self, task_id: str, **columns: Any) -> TaskRun:
        """Add a run under the next number; the task must be locked."""
        last = select(func.max(TaskRun.number)).where(TaskRun.task_id == task_id)
        number = (await self._session.scalar(last) or 0) + 1
        row = TaskRun(task_id=task_id, number=number, **columns)
        self._session.add(row)
        await self._session.flush()
        return row

    async def get_run(self, task_id: str, number: int) -> TaskRun:
        return await self._session.get_one(TaskRun, (task_id, number))

    async def find_open_run(self, task_id: str, *, attempt: int = 0) -> TaskRun | None:
        """Find the run of the task itself, or of one of its attempts, that has not ended."""
        own = select(TaskRun).where(
            of_attempt(TaskRun, task_id, attempt), TaskRun.ended_at.is_(None)
        )
        return await self._session.scalar(own)

    async def find_run(
        self, task_id: str, *, kind: RunKind, cause: str, cause_ref: str
    ) -> TaskRun | None:
        return await self._session.scalar(
            select(TaskRun).where(
                TaskRun.task_id == task_id,
                TaskRun.kind == kind,
                TaskRun.cause == cause,
                TaskRun.cause_ref == cause_ref,
            )
        )

    async def find_last_run(
        self, task_id: str, kind: RunKind | None = None, *, attempt: int = 0
    ) -> TaskRun | None:
        """Find the last run of the task itself, or of one of its attempts."""
        own = select(TaskRun).where(of_attempt(TaskRun, task_id, attempt))
        if kind is not None:
            own = own.where(TaskRun.kind == kind)
        return await self._session.scalar(own.order_by(TaskRun.number.desc()).limit(1))

    async def list_runs(self, task_id: str, *, after: int = 0, limit: int) -> Sequence[TaskRun]:
        """List runs, oldest first, after a number."""
        own = select(TaskRun).where(TaskRun.task_id == task_id, TaskRun.number > after)
        return (await self._session.scalars(own.order_by(TaskRun.number).limit(limit))).all()

    async def list_runs_of_attempt(self, task_id: str, attempt: int) -> Sequence[TaskRun]:
        """List the runs of an attempt; 0: those of the task itself and of the chosen attempt."""
        own = select(TaskRun).where(of_attempt(TaskRun, task_id, attempt))
        return (await self._session.scalars(own.order_by(TaskRun.number))).all()

    async def list_sandboxes(self, task_id: str) -> Sequence[str]:
        """List the sandboxes that the runs of a task were in."""
        own = select(TaskRun.sandbox_id).where(TaskRun.task_id == task_id).distinct()
        return (await self._session.scalars(own)).all()

    async def list_checks(self, repository_id: str, sha: str) -> Sequence[ForgeCheck]:
        """List the checks of a commit at the forge."""
        own = select(ForgeCheck).where(
            ForgeCheck.repository_id == repository_id, ForgeCheck.sha == sha
        )
        return (await self._session.scalars(own.order_by(ForgeCheck.name))).all()


def facts_of_check(check: ForgeCheck) -> CheckFacts:
    """Describe a stored check as adapters take it."""
    conclusion = None if check.conclusion is None else CheckConclusion(check.conclusion)
    return CheckFacts(
        external_id=check.external_id,
        name=check.name,
        origin=check.origin,
        is_done=check.is_done,
        conclusion=conclusion,
        url=check.url,
    )
