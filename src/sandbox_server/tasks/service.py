from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import (
    Repository,
    Task,
    TaskMessage,
)
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AttemptNotFound, InvalidStage, TaskExists
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.ids import is_id
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.tasks.events import TaskMessageAdded
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import (
    TASK_ENDED,
    MessageOrigin,
    Stage,
    TaskTarget,
)
from sandbox_server.jobs.kinds import TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.service import Repositories
from sandbox_server.tasks.creation import TaskRequest, add_task, new_task
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.quotes import Quote, with_quotes
from sandbox_server.tasks.repository import TaskEntry, TaskFilter, TaskRepository
from sandbox_server.tasks.transitions import TaskMove, apply_move

_RETRIED = frozenset({Stage.WAITING_FOR_USER, Stage.FAILED, Stage.CANCELLED, Stage.TIMED_OUT})


@dataclass(frozen=True, kw_only=True)
class TaskQuery:
    """Which tasks are listed."""

    repository: str | None = None
    """Id or full name."""
    stages: frozenset[str] = frozenset()
    archived: bool = False


class Tasks:
    """Use cases of tasks. Each is committed with the job that carries it out."""

    def __init__(self, sessions: Sessions, repositories: Repositories) -> None:
        self._sessions = sessions
        self._repositories = repositories

    async def create(
        self,
        caller: Caller,
        repository: str,
        wanted: TaskRequest,
        *,
        idempotency: Idempotency | None = None,
    ) -> TaskEntry:
        """Create a task for a repository, named by its id or its full name."""
        row = await self._find_repository(caller, repository)
        task = new_task(row, wanted, caller=caller)
        async with self._sessions.begin() as session:
            created = await IdempotencyRepository(session).claim(
                caller.tenant_id, idempotency, resource="task", resource_id=task.id
            )
            if created == task.id:
                await _require_none_open(session, task)
                await add_task(session, row, task, wanted, actor=caller.actor, cause=Cause.REQUEST)
        return await self.get(caller, created)

    async def create_from_trigger(self, repository: Repository, wanted: TaskRequest) -> Task | None:
        """Create the task of a webhook; None if one is open for the same issue, comment or commit."""
        task = new_task(repository, wanted)
        async with self._sessions.begin() as session:
            await TaskRepository(session).lock_places(repository.id)
            if await _find_open(session, task) is not None:
                return None
            await add_task(session, repository, task, wanted, actor=SERVER, cause=Cause.FORGE)
        return task

    async def get(self, caller: Caller, task_id: str) -> TaskEntry:
        async with without_transaction(self._sessions) as session:
            return await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)

    async def list_page(
        self, caller: Caller, query: TaskQuery, *, limit: int, before: str | None = None
    ) -> Sequence[TaskEntry]:
        """List tasks, newest first."""
        named = query.repository
        found = None if named is None else await self._find_repository(caller, named)
        wanted = TaskFilter(
            stages=query.stages,
            repository_id=None if found is None else found.id,
            archived=query.archived,
        )
        async with without_transaction(self._sessions) as session:
            return await TaskRepository(session).list_page(
                caller.tenant_id, wanted, limit=limit, before=before
            )

    async def send_message(
        self, caller: Caller, task_id: str, text: str, *, interrupt: bool = False
    ) -> TaskMessage:
        """Send the agent a message. The next run gets it; a waiting task begins that run at once."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id, tenant_id=caller.tenant_id)
            _require_open(row, "messages")
            history = TaskHistoryRepository(session)
            message_id = await history.add_message(
                task_id,
                origin=MessageOrigin.API,
                text=text,
                author=caller.key_id,
                data={"interrupt": interrupt},
            )
            assert message_id is not None
            await _announce(session, row, message_id, MessageOrigin.API, caller.key_id, caller)
            return await session.get_one(TaskMessage, message_id)

    async def add_message(
        self,
        task_id: str,
        *,
        origin: MessageOrigin,
        origin_ref: str,
        text: str,
        author: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> bool:
        """Tell the agent what a forge delivered; returns False if it was told before, or has ended."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id)
            if row.ended_at is not None or row.outcome is not None:
                return False
            message_id = await TaskHistoryRepository(session).add_message(
                task_id, origin=origin, origin_ref=origin_ref, text=text, author=author, data=data
            )
            if message_id is None:
                return False
            await _announce(session, row, message_id, origin, author)
        return True

    async def cancel(self, caller: Caller, task_id: str) -> TaskEntry:
        """End a task: its work is saved, then its sandbox is deleted. An open pull request stays."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id, tenant_id=caller.tenant_id)
            if row.stage in TASK_ENDED and row.stage != Stage.CANCELLED:
                raise InvalidStage(row.stage, "a cancellation")
            if row.ended_at is None:
                row.target = TaskTarget.CANCELLED
                await JobRepository(session).due(TASK, task_id)
        return await self.get(caller, task_id)

    async def retry(self, caller: Caller, task_id: str) -> TaskEntry:
        """Go on with a task that waits, or that ended without a result; its work is restored."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id, tenant_id=caller.tenant_id)
            if row.stage not in _RETRIED:
                raise InvalidStage(row.stage, "a retry")
            await _require_none_open(session, row)
            await _retry(session, row, caller)
        return await self.get(caller, task_id)

    async def approve(self, caller: Caller, task_id: str, *, head: str | None = None) -> TaskEntry:
        """Publish the work although the server refused to, or although checks fail."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id, tenant_id=caller.tenant_id)
            waits_for = row.awaits or {}
            if "approve" not in waits_for.get("actions", ()):
                raise InvalidStage(row.stage, "an approval")
            approved = head or waits_for["data"]["head"]
            await _go_on(
                session,
                row,
                Stage.PUBLISHING,
                reason=f"Approved: {approved} is published.",
                caller=caller,
                values={"approved": [*row.approved, approved]},
            )
        return await self.get(caller, task_id)

    async def choose_attempt(self, caller: Caller, task_id: str, number: int) -> TaskEntry:
        """Choose an attempt instead of the server; the job does it once the attempt has finished."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id, tenant_id=caller.tenant_id)
            if number > row.attempts:
                raise AttemptNotFound(str(number))
            if row.chosen_attempt != number:
                _require_open(row, "a choice")
                if row.chosen_attempt is not None:
                    raise InvalidStage(row.stage, "a choice; one is chosen already")
                await _choose_attempt(session, row, number, caller)
        return await self.get(caller, task_id)

    async def archive(self, caller: Caller, task_id: str) -> TaskEntry:
        """Leave an ended task out of lists."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(task_id, tenant_id=caller.tenant_id)
            if row.ended_at is None:
                raise InvalidStage(row.stage, "archiving; cancel it first")
            row.archived_at = row.archived_at or await TaskRepository(session).clock()
        return await self.get(caller, task_id)

    async def _find_repository(self, caller: Caller, named: str) -> Repository:
        if is_id(named):
            return (await self._repositories.get(caller, named)).row
        return await self._repositories.find_by_name(caller.tenant_id, named)


async def _announce(
    session: AsyncSession,
    row: Task,
    message_id: str,
    origin: str,
    author: str | None,
    caller: Caller | None = None,
) -> None:
    await JobRepository(session).due(TASK, row.id)
    added = TaskMessageAdded(
        task_id=row.id,
        cause=Cause.FORGE if caller is None else Cause.REQUEST,
        actor=SERVER if caller is None else caller.actor,
        reason=f"Message from {author or origin}.",
        message_id=message_id,
        origin=origin,
        author=author,
    )
    await apply_move(session, row, TaskMove(events=[added]))


async def _choose_attempt(session: AsyncSession, row: Task, number: int, caller: Caller) -> None:
    is_awaited = "choose" in (row.awaits or {}).get("actions", ())
    stage = Stage(row.stage_before or Stage.WORKING) if is_awaited else Stage(row.stage)
    reason = f"Attempt {number} was chosen by API request."
    values = {"wanted_attempt": number}
    await _go_on(session, row, stage, reason=reason, caller=caller, values=values)


async def _retry(session: AsyncSession, row: Task, caller: Caller) -> None:
    stage = Stage(row.stage_before or Stage.QUEUED)
    values: dict[str, Any] = {"fixes_since_green": 0, "runs": 0, "target": TaskTarget.FINISHED}
    if row.ended_at is not None:
        stage = Stage.QUEUED
        values |= {"ended_at": None, "outcome": None, "outcome_at": None, "archived_at": None}
        if row.chosen_attempt is None:
            values |= {"attempts_snapshot": None, "wanted_attempt": None}
            await TaskRepository(session).reopen_attempts(row.id)
    settings = RepositorySettings.of(row.settings)
    if settings.budget_usd is not None:
        values["budget_usd"] = row.spent_usd + settings.budget_usd
    values["deadline_at"] = await TaskRepository(session).clock() + settings.deadline
    if stage is not Stage.PUBLISHING:  # the agent has done its part there
        await TaskHistoryRepository(session).add_message(
            row.id,
            origin=MessageOrigin.SERVER,
            origin_ref=f"retry/{row.generation}",
            text="Go on with the task.",
            data=with_quotes(Quote(about="Before, it stopped here:", text=row.stage_reason or "")),
        )
    await _go_on(
        session, row, stage, reason="Retried by API request.", caller=caller, values=values
    )


async def _go_on(
    session: AsyncSession,
    row: Task,
    stage: Stage,
    *,
    reason: str,
    caller: Caller,
    values: Mapping[str, Any],
) -> None:
    move = TaskMove(
        stage=stage, reason=reason, cause=Cause.REQUEST, actor=caller.actor, values=values
    )
    await JobRepository(session).due(TASK, row.id)
    await apply_move(session, row, move)


async def _require_none_open(session: AsyncSession, task: Task) -> None:
    await TaskRepository(session).lock_places(task.repository_id)
    found = await _find_open(session, task)
    if found is not None and found.id != task.id:
        raise TaskExists(found.id, f"{task.source} {task.source_ref}")


async def _find_open(session: AsyncSession, task: Task) -> Task | None:
    if task.source_ref is None:
        return None
    return await TaskRepository(session).find_open(task.repository_id, task.source, task.source_ref)


def _require_open(row: Task, action: str) -> None:
    if row.ended_at is not None or row.outcome is not None:
        raise InvalidStage(row.stage, action)
