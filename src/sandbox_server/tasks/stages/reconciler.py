import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from sandbox_server.db.models import Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import (
    BundleRefused,
    CheckoutFailed,
    CheckoutRefused,
    CommitNotFound,
    ForgeError,
    InvalidRequest,
    RemoteRefused,
    RepositoryTooLarge,
    SandboxError,
    SaveTooLarge,
    StartRefused,
    TemplateNotFound,
)
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import GitAccess
from sandbox_server.domain.tasks.stages import RunOutcome, Stage, TaskTarget
from sandbox_server.forges.service import Forges
from sandbox_server.jobs.kinds import TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.structured_logging import log_context
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.stages.runs import EndedRun, RunResult, TaskRuns
from sandbox_server.tasks.stages.work import AGAIN, Blocked, SandboxLost, Step, TaskWork, WaitKind
from sandbox_server.tasks.transitions import (
    TaskChanged,
    TaskMove,
    TaskTransitions,
    apply_move,
    lock_seen,
)

log = logging.getLogger(__name__)

_ATTEMPTS = 8
"""After this many unexpected failures of a step the task waits for a person; jobs die after ten."""

_SHORTEST_DELAY = timedelta(seconds=1)
_LONGEST_DELAY = timedelta(minutes=5)
_DELAYS_PER_WAIT = 4
_OUTAGE = timedelta(hours=24)
_REFUSED_ONCE = timedelta(seconds=30)
_SOON = timedelta(seconds=2)
_WITHOUT_SANDBOX = frozenset({Stage.QUEUED, Stage.IN_REVIEW, Stage.WAITING_FOR_USER})

_FOR_GOOD: Mapping[type[SandboxError], WaitKind] = {
    TemplateNotFound: WaitKind.SANDBOX,
    StartRefused: WaitKind.SANDBOX,
    InvalidRequest: WaitKind.SANDBOX,
    CheckoutFailed: WaitKind.SANDBOX,
    CheckoutRefused: WaitKind.SANDBOX,
    BundleRefused: WaitKind.SAVE,
    SaveTooLarge: WaitKind.SAVE,
    CommitNotFound: WaitKind.FORGE,
    RemoteRefused: WaitKind.FORGE,
    RepositoryTooLarge: WaitKind.FORGE,
}
"""Failures that a repetition does not resolve."""


class TaskReconciler:
    """Brings tasks to their end, one step per pass.

    A step looks up what exists before it does anything, and commits what it did. A crash between the two repeats the step,
    which then finds what it has done.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        forges: Forges,
        runs: TaskRuns,
        steps: Mapping[Stage, Step],
        ending: Step,
    ) -> None:
        self._sessions = sessions
        self._forges = forges
        self._runs = runs
        self._steps = steps
        self._ending = ending
        self._transitions = TaskTransitions(sessions)

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Do the next step of a task; returns when the one after it is due."""
        work = await self._observe(job.subject)
        if work is None:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(TASK, job.subject)
            return None
        with log_context(task_id=work.task.id):
            delay = await self._do(work, attempts=job.attempts)
        return None if delay is None else work.now + delay

    async def _observe(self, task_id: str) -> TaskWork | None:
        async with without_transaction(self._sessions) as session:
            found = await TaskRepository(session).find(task_id)
            if found is None or found[0].ended_at is not None:
                return None
            task, now = found
            return TaskWork(task, await session.get_one(Repository, task.repository_id), now)

    async def _do(self, work: TaskWork, *, attempts: int) -> timedelta | None:
        try:
            return await self._step(work).work(work)
        except TaskChanged:
            return AGAIN
        except SandboxLost as lost:
            return await self._replace_sandbox(work, lost)
        except Blocked as blocked:
            return await self._block(work, blocked)
        except SandboxError as error:
            return await self._after_failure(work, error)
        except Exception as error:
            if attempts < _ATTEMPTS:
                raise
            log.exception("step fails again and again stage=%s", work.task.stage)
            text = f"The server failed at this step: {type(error).__name__}. Its log has details."
            return await self._block(work, Blocked(WaitKind.ERROR, text))

    def _step(self, work: TaskWork) -> Step:
        is_ending = work.task.outcome is not None or work.task.target == TaskTarget.CANCELLED
        return self._ending if is_ending else self._steps[Stage(work.task.stage)]

    async def _after_failure(self, work: TaskWork, error: SandboxError) -> timedelta | None:
        """Wait longer and longer while others fail; ask a person where waiting does not help."""
        if isinstance(error, RemoteRefused) and work.in_stage_for < _REFUSED_ONCE:
            return await self._mint_again(work, error)
        kind = kind_of_failure(error, work.in_stage_for)
        if kind is not None:
            return await self._block(work, Blocked(kind, describe_failure(error)))
        log.info("step postponed stage=%s error=%s", work.task.stage, error)
        return delay_after(error, work.in_stage_for)

    async def _mint_again(self, work: TaskWork, error: RemoteRefused) -> timedelta:
        """Forget the credentials that git was refused with: a minted one may have been revoked."""
        log.info("credentials minted anew stage=%s error=%s", work.task.stage, error)
        adapter = await self._forges.adapter(work.repository.forge_id)
        for access in GitAccess:
            await adapter.refuse_credential(work.facts, access)
        return _SOON

    async def _block(self, work: TaskWork, blocked: Blocked) -> timedelta | None:
        """Have the task wait for a person, unless one has spoken since the step began."""
        if work.task.outcome is not None or work.task.target == TaskTarget.CANCELLED:
            return _LONGEST_DELAY  # what is to end goes on trying
        with suppress(TaskChanged):
            async with self._sessions.begin() as session:
                row = await lock_seen(session, work.task)
                if not await TaskRepository(session).has_untold(row.id, since=work.now):
                    await apply_move(session, row, blocked.move())
        return AGAIN

    async def _replace_sandbox(self, work: TaskWork, lost: SandboxLost) -> timedelta:
        """Go back to the preparation, which restores the last save into a new sandbox."""
        task = work.task
        stage = Stage(task.stage)
        move = TaskMove(
            stage=None if stage in _WITHOUT_SANDBOX else Stage.PREPARING,
            reason=f"The sandbox was lost: {lost} The work is restored from the last save.",
            values={"sandbox_id": None, "sandbox_ready": False},
        )
        run = await self._runs.find_open(task.id)
        with suppress(TaskChanged):
            if run is None:
                await self._transitions.commit(task, move)
            else:
                result = RunResult(outcome=RunOutcome.LOST, summary=str(lost))
                await self._runs.end(task, run, EndedRun(result=result, move=move))
        return AGAIN


def kind_of_failure(error: SandboxError, failing_for: timedelta) -> WaitKind | None:
    """Return what a failure is that repeating does not resolve, or has not for a day; None: it may."""
    kind = _kind_of(error)
    return WaitKind.ERROR if kind is None and failing_for > _OUTAGE else kind


def delay_after(error: SandboxError, failing_for: timedelta) -> timedelta:
    """Choose when to repeat a step: the longer it fails, the later."""
    longer = min(max(failing_for / _DELAYS_PER_WAIT, _SHORTEST_DELAY), _LONGEST_DELAY)
    return max(error.retry_after or AGAIN, longer)


def _kind_of(error: SandboxError) -> WaitKind | None:
    if isinstance(error, ForgeError):
        return None if error.is_repeatable else WaitKind.FORGE
    return next((kind for cause, kind in _FOR_GOOD.items() if isinstance(error, cause)), None)


def describe_failure(error: SandboxError) -> str:
    """Say what is wrong, and what to do."""
    return f"{error} {error.remediation or ''}".strip()
