from datetime import timedelta

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.stages import Stage
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, TaskWork
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions

PATIENCE = timedelta(days=14)
_LOOK_EVERY = timedelta(hours=1)
_BEFORE_WORK = frozenset({Stage.QUEUED, Stage.PREPARING})


class Waiting:
    """Tasks that wait for a person: their sandbox is paused; a message takes them back to work."""

    def __init__(
        self, sessions: Sessions, sandboxes: TaskSandboxes, transitions: TaskTransitions
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._transitions = transitions

    async def work(self, work: TaskWork) -> timedelta | None:
        """Go on after a message; give up after two weeks."""
        task = work.task
        async with without_transaction(self._sessions) as session:
            is_answered = await TaskRepository(session).has_untold(task.id, since=task.stage_at)
        if is_answered:
            move = TaskMove(stage=_stage_after(work), reason="A message was sent.")
            await self._transitions.commit(task, move)
            return AGAIN
        if work.in_stage_for >= PATIENCE:
            given_up = work.ending(Stage.TIMED_OUT, f"Nobody answered in {PATIENCE.days} days.")
            await self._transitions.commit(task, given_up)
            return AGAIN
        await self._sandboxes.pause(work)
        return min(_LOOK_EVERY, PATIENCE - work.in_stage_for)


def _stage_after(work: TaskWork) -> Stage:
    before = Stage(work.task.stage_before or Stage.QUEUED)
    return before if before in _BEFORE_WORK else work.working_stage
