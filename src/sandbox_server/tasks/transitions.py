from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Task
from sandbox_server.db.session import Sessions
from sandbox_server.domain.events import SERVER, Actor, Cause, LoggedEvent
from sandbox_server.domain.tasks.events import TaskEnded, TaskStageEntered, TaskWaiting
from sandbox_server.domain.tasks.stages import ACTIVE, TASK_ENDED, Stage
from sandbox_server.jobs.kinds import TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.tasks.repository import TaskRepository

_NEXT_IN_LINE = 3


class TaskChanged(Exception):
    """The task has changed since it was read: by a request, or by another worker."""


@dataclass(frozen=True, kw_only=True)
class TaskMove:
    """A change of a task, with the events that describe it."""

    stage: Stage | None = None
    reason: str | None = None
    awaits: Mapping[str, Any] | None = None
    """Only of `waiting-for-user`."""
    values: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[LoggedEvent] = ()
    cause: Cause = Cause.TASK
    actor: Actor = SERVER


class TaskTransitions:
    """Commits what the reconciler did: fenced by the row's generation, which each commit increments."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def commit(self, seen: Task, move: TaskMove) -> Task:
        """Commit a change of the task as it was read; raises `TaskChanged` if it has changed since."""
        async with self._sessions.begin() as session:
            row = await lock_seen(session, seen)
            await apply_move(session, row, move)
        return row


async def lock_seen(session: AsyncSession, seen: Task) -> Task:
    """Lock the task and require that it is as it was read."""
    row = await TaskRepository(session).lock(seen.id)
    if row.generation != seen.generation:
        raise TaskChanged(seen.id)
    return row


async def apply_move(session: AsyncSession, row: Task, move: TaskMove) -> None:
    """Change a locked row; the last statement of its transaction, since it appends to the log."""
    events = list(move.events)
    if move.stage is not None or move.values:
        row.generation += 1
    for name, value in move.values.items():
        setattr(row, name, value)
    if move.stage is not None and move.stage != row.stage:
        events += await _enter(session, row, move)
    elif move.reason is not None:
        row.stage_reason = move.reason
    await session.flush()
    await EventRepository(session).append(row.tenant_id, *events)


async def _enter(session: AsyncSession, row: Task, move: TaskMove) -> Sequence[LoggedEvent]:
    assert move.stage is not None
    before = Stage(row.stage)
    with session.no_autoflush:  # the values of the move fit only the new stage
        now = await TaskRepository(session).clock()
    row.stage, row.stage_at, row.stage_reason = move.stage, now, move.reason
    row.awaits = None if move.awaits is None else dict(move.awaits)
    if move.stage is Stage.WAITING_FOR_USER:
        row.stage_before = before
    if move.stage in TASK_ENDED:
        row.ended_at = now
    await session.flush()
    await _free_place(session, row, before)
    return _events(row, before, move)


async def _free_place(session: AsyncSession, row: Task, before: Stage) -> None:
    """Wake the next tasks in line when this one gives up its place."""
    if before in ACTIVE and row.stage not in ACTIVE:
        tasks = TaskRepository(session)
        for task_id in await tasks.list_queued(row.repository_id, limit=_NEXT_IN_LINE):
            await JobRepository(session).due(TASK, task_id)


def _events(row: Task, before: Stage, move: TaskMove) -> Sequence[LoggedEvent]:
    stage = Stage(row.stage)
    said = {
        "task_id": row.id,
        "cause": move.cause,
        "actor": move.actor,
        "reason": move.reason or f"Entered {stage}.",
    }
    events: list[LoggedEvent] = [TaskStageEntered(stage=stage, before=before, **said)]
    if stage is Stage.WAITING_FOR_USER:
        events.append(TaskWaiting(awaits=row.awaits or {}, **said))
    if stage in TASK_ENDED:
        events.append(TaskEnded(stage=stage, **said))
    return events
