import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from sandbox_server.db.models import Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.stages import AttemptState, RunOutcome
from sandbox_server.jobs.kinds import TASK_ATTEMPT
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.structured_logging import log_context
from sandbox_server.tasks.attempts.agent_run import AttemptAgent, AttemptStart
from sandbox_server.tasks.attempts.checks import AttemptChecks
from sandbox_server.tasks.attempts.ending import AttemptEnd
from sandbox_server.tasks.attempts.runs import AttemptRuns
from sandbox_server.tasks.attempts.transitions import (
    AttemptChanged,
    AttemptMove,
    AttemptTransitions,
)
from sandbox_server.tasks.attempts.work import AttemptWork
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.stages.reconciler import delay_after, describe_failure, kind_of_failure
from sandbox_server.tasks.stages.runs import EndedRun, RunResult
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, Blocked, SandboxLost, WaitKind

log = logging.getLogger(__name__)

_MOST_FAILURES = 8
_Step = AttemptStart | AttemptAgent | AttemptChecks


class AttemptReconciler:
    """Brings attempts to their end, each by its own job, one step per pass; see `TaskReconciler`.

    An attempt that needs a person finishes: only the one that is chosen asks.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        runs: AttemptRuns,
        sandboxes: TaskSandboxes,
        steps: Mapping[AttemptState, _Step],
        end: AttemptEnd,
        transitions: AttemptTransitions,
    ) -> None:
        self._sessions = sessions
        self._runs = runs
        self._sandboxes = sandboxes
        self._steps = steps
        self._end = end
        self._transitions = transitions

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Do the next step of an attempt; returns when the one after it is due."""
        work = await self._observe(job.subject)
        if work is None:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(TASK_ATTEMPT, job.subject)
            return None
        with log_context(task_id=work.task.id, attempt=str(work.attempt_number)):
            delay = await self._do(work, failures=job.attempts)
        return None if delay is None else work.now + delay

    async def _observe(self, subject: str) -> AttemptWork | None:
        task_id, _, number = subject.partition("/")
        async with without_transaction(self._sessions) as session:
            tasks = TaskRepository(session)
            found = await tasks.find(task_id)
            if found is None or found[0].ended_at is not None:
                return None
            attempt = await tasks.get_attempt(task_id, int(number))
            if attempt.ended_at is not None:
                return None
            repository = await session.get_one(Repository, found[0].repository_id)
            return AttemptWork.of(found[0], attempt, repository, found[1])

    async def _do(self, work: AttemptWork, *, failures: int) -> timedelta | None:
        try:
            return await self._work(work)
        except AttemptChanged:
            return AGAIN
        except SandboxLost as lost:
            return await self._replace_sandbox(work, lost)
        except Blocked as blocked:
            return await self._finish(work, blocked)
        except SandboxError as error:
            return await self._after_failure(work, error)
        except Exception as error:
            if failures < _MOST_FAILURES or work.is_leaving:
                raise
            log.exception("step fails again and again state=%s", work.attempt.state)
            text = f"The server failed at this step: {type(error).__name__}. Its log has details."
            return await self._finish(work, Blocked(WaitKind.ERROR, text))

    async def _work(self, work: AttemptWork) -> timedelta | None:
        if work.is_leaving:
            return await self._end.work(work)
        if work.attempt.state == AttemptState.FINISHED:
            await self._sandboxes.pause(work)  # it gives its place to attempts that wait for one
            return None
        return await self._steps[AttemptState(work.attempt.state)].work(work)

    async def _after_failure(self, work: AttemptWork, error: SandboxError) -> timedelta | None:
        kind = None if work.is_leaving else kind_of_failure(error, work.in_stage_for)
        if kind is not None:
            return await self._finish(work, Blocked(kind, describe_failure(error)))
        log.info("step postponed state=%s error=%s", work.attempt.state, error)
        return delay_after(error, work.in_stage_for)

    async def _finish(self, work: AttemptWork, blocked: Blocked) -> timedelta:
        """End the attempt with what it waits for; a run that is open was lost with it."""
        move = AttemptMove(
            state=AttemptState.FINISHED, reason=blocked.text, values={"awaits": blocked.awaits}
        )
        await self._end_run(work, blocked.text, move)
        return AGAIN

    async def _replace_sandbox(self, work: AttemptWork, lost: SandboxLost) -> timedelta:
        """Begin anew from the snapshot, with the last save of the attempt."""
        is_working = work.attempt.state in (AttemptState.WORKING, AttemptState.CHECKING)
        move = AttemptMove(
            state=AttemptState.QUEUED if is_working else None,
            reason=f"The sandbox was lost: {lost} The work is restored from the last save.",
            values={"sandbox_id": None, "sandbox_ready": False},
        )
        await self._end_run(work, str(lost), move)
        return AGAIN

    async def _end_run(self, work: AttemptWork, summary: str, move: AttemptMove) -> None:
        run = await self._runs.find_open(work.attempt)
        try:
            if run is None:
                await self._transitions.commit(work.attempt, move)
            else:
                result = RunResult(outcome=RunOutcome.LOST, summary=summary)
                await self._runs.end(work.attempt, run, EndedRun(result=result), move)
        except AttemptChanged:
            log.info("attempt has changed attempt=%d", work.attempt_number)
