from datetime import timedelta

from sandbox_server.db.models import TaskRun
from sandbox_server.domain.tasks.stages import AttemptState, RunKind, RunOutcome
from sandbox_server.tasks.attempts.runs import AttemptRuns
from sandbox_server.tasks.attempts.transitions import AttemptMove, AttemptTransitions
from sandbox_server.tasks.attempts.work import AttemptWork
from sandbox_server.tasks.stages.budget import require_time
from sandbox_server.tasks.stages.checking import CHECK_WORDS, POLL, check_request
from sandbox_server.tasks.stages.runs import EndedRun, NewRun, RunResult
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN

_CAUSE = "checks"


class AttemptChecks:
    """Checking attempts: what comes of the repository's checks is noted, and counts in the choice."""

    def __init__(
        self,
        *,
        sandboxes: TaskSandboxes,
        runs: AttemptRuns,
        transitions: AttemptTransitions,
    ) -> None:
        self._sandboxes = sandboxes
        self._runs = runs
        self._transitions = transitions

    async def work(self, work: AttemptWork) -> timedelta:
        """Begin, start, follow or end the checks."""
        run = await self._runs.find_open(work.attempt)
        if run is None:
            return await self._begin(work)
        if run.command_id is None:
            await self._runs.start(work, run, check_request(work))
            return POLL
        result = await self._runs.commands.read_check_result(
            await self._runs.commands.read_command(run)
        )
        if result is None:
            await self._sandboxes.keep_awake(work)
            return POLL
        return await self._end(work, run, result)

    async def _begin(self, work: AttemptWork) -> timedelta:
        if work.settings.checks is None:
            move = AttemptMove(state=AttemptState.FINISHED, reason="The repository has no checks.")
            await self._transitions.commit(work.attempt, move)
            return AGAIN
        require_time(work)
        used = await self._sandboxes.use(work)
        new = NewRun(
            kind=RunKind.CHECKS,
            cause=_CAUSE,
            cause_ref=f"{work.task.head_sha}/{work.attempt.generation}",
            sandbox_id=used.row.id,
            head_before=work.task.head_sha,
        )
        await self._runs.begin(work.attempt, new)
        return AGAIN

    async def _end(self, work: AttemptWork, run: TaskRun, result: RunResult) -> timedelta:
        move = AttemptMove()  # lost checks are run again
        if result.outcome is not RunOutcome.LOST:
            move = AttemptMove(
                state=AttemptState.FINISHED,
                reason=f"The checks {CHECK_WORDS[result.outcome]}.",
                values={"checks": result.outcome},
            )
        ended = EndedRun(result=result, head_after=work.task.head_sha)
        await self._runs.end(work.attempt, run, ended, move)
        return AGAIN
