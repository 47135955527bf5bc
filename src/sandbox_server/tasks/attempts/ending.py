from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sandbox_server.db.models import TaskRun
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import SaveFailed, SaveTooLarge
from sandbox_server.domain.tasks.stages import AttemptState, RunOutcome
from sandbox_server.jobs.kinds import TASK_ATTEMPT
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.tasks.attempts.runs import AttemptRuns
from sandbox_server.tasks.attempts.sandboxes import AttemptSandboxes
from sandbox_server.tasks.attempts.snapshots import AttemptSnapshots
from sandbox_server.tasks.attempts.transitions import AttemptMove, AttemptTransitions
from sandbox_server.tasks.attempts.work import AttemptWork
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.stages.ending import Ending
from sandbox_server.tasks.stages.runs import EndedRun, RunResult
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, SandboxLost, TaskWork

_SOON = timedelta(seconds=1)
_LOOK_AGAIN = timedelta(seconds=2)


class AttemptEnd:
    """Attempts that were not chosen, or whose task ends: interrupt, save, delete the sandbox."""

    def __init__(
        self,
        *,
        own: AttemptSandboxes,
        sandboxes: TaskSandboxes,
        runs: AttemptRuns,
        transitions: AttemptTransitions,
    ) -> None:
        self._own = own
        self._sandboxes = sandboxes
        self._runs = runs
        self._transitions = transitions

    async def work(self, work: AttemptWork) -> timedelta | None:
        """Do the next of what is left; nothing is deleted before it is saved."""
        run = await self._runs.find_open(work.attempt)
        if run is not None:
            return await self._end_run(work, run)
        try:
            await self._own.save(work)
        except (SaveTooLarge, SaveFailed) as error:
            await self._end(work, f" The sandbox was kept, since its work is not saved: {error}")
            return None
        if not await self._own.delete(work):
            return _SOON
        await self._end(work)
        return None

    async def _end_run(self, work: AttemptWork, run: TaskRun) -> timedelta:
        if run.command_id is None:
            return await self._close(work, run, _result("The run was cancelled before it began."))
        result = await self._runs.commands.read_result(await self._runs.commands.read_command(run))
        if result is not None:
            # A failed save is repeated, and reported, once the run has ended.
            with suppress(SaveTooLarge, SaveFailed):
                await self._own.save(work, run)
            return await self._close(work, run, result)
        try:
            used = await self._sandboxes.use(work)
            await self._runs.commands.interrupt(work.caller, used, run, waited=work.ending_for)
        except SandboxLost:
            return await self._close(work, run, _result("The sandbox was lost."))
        return _SOON

    async def _close(self, work: AttemptWork, run: TaskRun, result: RunResult) -> timedelta:
        ended = EndedRun(result=replace(result, outcome=RunOutcome.INTERRUPTED))
        await self._runs.end(work.attempt, run, ended, AttemptMove())
        return AGAIN

    async def _end(self, work: AttemptWork, note: str = "") -> None:
        attempt = work.attempt
        values: dict[str, Any] = {"ended_at": work.now}
        if attempt.state == AttemptState.NOT_CHOSEN:
            values |= {"reason": f"{attempt.reason}{note}"}
            move = AttemptMove(values=values)
        else:
            reason = f"Cancelled: the task has ended.{note}"
            move = AttemptMove(state=AttemptState.CANCELLED, reason=reason, values=values)
        await self._transitions.commit(attempt, move)


def _result(summary: str) -> RunResult:
    return RunResult(outcome=RunOutcome.INTERRUPTED, summary=summary)


class AttemptsEnding:
    """Tasks that are to end: their attempts end first, then the task itself."""

    def __init__(self, sessions: Sessions, snapshots: AttemptSnapshots, ending: Ending) -> None:
        self._sessions = sessions
        self._snapshots = snapshots
        self._ending = ending

    async def work(self, work: TaskWork) -> timedelta | None:
        """Have the jobs of the attempts end them; they wake the task."""
        task = work.task
        if task.attempts and task.outcome is not None:
            if await self._wake_open(task.id):
                return _LOOK_AGAIN
            await self._snapshots.delete(work)
        return await self._ending.work(work)

    async def _wake_open(self, task_id: str) -> bool:
        """Make the jobs of the open attempts due; returns whether there are any."""
        async with self._sessions.begin() as session:
            attempts = await TaskRepository(session).list_attempts(task_id)
            is_open = [attempt for attempt in attempts if attempt.ended_at is None]
            for attempt in is_open:
                await JobRepository(session).due(TASK_ATTEMPT, f"{task_id}/{attempt.number}")
        return bool(is_open)
