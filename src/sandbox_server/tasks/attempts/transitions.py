from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Task, TaskAttempt
from sandbox_server.db.session import Sessions
from sandbox_server.domain.events import SERVER, Cause, LoggedEvent
from sandbox_server.domain.tasks.events import TaskAttemptChanged
from sandbox_server.domain.tasks.stages import AttemptState
from sandbox_server.jobs.kinds import TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.tasks.repository import TaskRepository


class AttemptChanged(Exception):
    """The attempt has changed since it was read."""


@dataclass(frozen=True, kw_only=True)
class AttemptMove:
    """A change of an attempt, with the events that describe it."""

    state: AttemptState | None = None
    reason: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[LoggedEvent] = ()


class AttemptTransitions:
    """Commits what is done for attempts: each is fenced by its own generation, so that they do not disturb each other."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def commit(self, seen: TaskAttempt, move: AttemptMove) -> None:
        """Commit a change of an attempt as it was read; raises `AttemptChanged` if it has changed since."""
        async with self._sessions.begin() as session:
            task, row = await lock_attempt(session, seen)
            await apply_attempt_move(session, task, row, move)


async def lock_attempt(session: AsyncSession, seen: TaskAttempt) -> tuple[Task, TaskAttempt]:
    """Lock the task, which all writers of its attempts do, and require that the attempt is as it was read."""
    tasks = TaskRepository(session)
    task = await tasks.lock(seen.task_id)
    row = await tasks.get_attempt(seen.task_id, seen.number)
    if row.generation != seen.generation:
        raise AttemptChanged
    return task, row


async def apply_attempt_move(
    session: AsyncSession, task: Task, row: TaskAttempt, move: AttemptMove
) -> None:
    """Change a locked attempt; the last statement of its transaction, since it appends to the log."""
    events = [*move.events, *await change_attempt(session, row, move)]
    if row.ended_at is not None or row.state == AttemptState.FINISHED:
        await JobRepository(session).due(TASK, task.id)
    await session.flush()
    await EventRepository(session).append(task.tenant_id, *events)


async def change_attempt(
    session: AsyncSession, row: TaskAttempt, move: AttemptMove
) -> Sequence[LoggedEvent]:
    """Change a locked attempt; returns the event that tells it."""
    row.generation += 1
    for name, value in move.values.items():
        setattr(row, name, value)
    if move.state is None:
        return ()
    row.state, row.reason = move.state, move.reason
    row.state_at = await TaskRepository(session).clock()
    return [_event(row)]


def _event(row: TaskAttempt) -> TaskAttemptChanged:
    return TaskAttemptChanged(
        task_id=row.task_id,
        cause=Cause.TASK,
        actor=SERVER,
        reason=f"Attempt {row.number}: {row.reason}",
        attempt=row.number,
        state=AttemptState(row.state),
    )
