from datetime import timedelta
from typing import Any

from sandbox_server.db.models import TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.commands import CommandRequest
from sandbox_server.domain.tasks.stages import MessageOrigin, RunKind, RunOutcome, Stage
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.quotes import Quote, with_quotes
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.stages.budget import require_time
from sandbox_server.tasks.stages.runs import EndedRun, NewRun, RunResult, TaskRuns
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, Blocked, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions

POLL = timedelta(seconds=1)
_CAUSE = "checks"
_LONGEST_OUTPUT = 16_000
CHECK_WORDS = {
    RunOutcome.SUCCEEDED: "passed",
    RunOutcome.FAILED: "failed",
    RunOutcome.INERT: "could not be started: the command does not exist in the sandbox",
    RunOutcome.INFRASTRUCTURE: "were killed, or the disk was full: this says nothing about the work",
    RunOutcome.TIMED_OUT: "did not finish in time",
    RunOutcome.LOST: "were lost with their sandbox",
}


class Checking:
    """Checking tasks: the repository's checks decide whether the work is published or fixed."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        runs: TaskRuns,
        tasks: Tasks,
        transitions: TaskTransitions,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._runs = runs
        self._tasks = tasks
        self._transitions = transitions

    async def work(self, work: TaskWork) -> timedelta | None:
        """Begin, start, follow or judge the checks of the head."""
        run = await self._runs.find_open(work.task.id)
        if run is None:
            return await self._begin(work)
        if run.command_id is None:
            return await self._start(work, run)
        result = await self._runs.read_check_result(await self._runs.read_command(run))
        if result is None:
            await self._sandboxes.keep_awake(work)
            return POLL
        return await self._judge(work, run, result)

    async def _begin(self, work: TaskWork) -> timedelta:
        task = work.task
        if work.settings.checks is None:
            move = TaskMove(stage=Stage.PUBLISHING, reason="The repository has no checks.")
            await self._transitions.commit(task, move)
            return AGAIN
        known = await self._find_of_attempt(work)
        if known is not None:
            return await self._judge(work, known, _result_of(known))
        require_time(work)
        used = await self._sandboxes.use(work)
        last = await self._runs.find_last(task.id, RunKind.CHECKS)
        new = NewRun(
            kind=RunKind.CHECKS,
            cause=_CAUSE,
            cause_ref=f"{task.head_sha}/{0 if last is None else last.number}",
            sandbox_id=used.row.id,
            head_before=task.head_sha,
        )
        await self._runs.begin(task, new)
        return AGAIN

    async def _find_of_attempt(self, work: TaskWork) -> TaskRun | None:
        """Find the checks that the chosen attempt has had, unless they were judged before."""
        task = work.task
        if task.chosen_attempt is None or "checks" in task.report:
            return None
        last = await self._runs.find_last(task.id, RunKind.CHECKS)
        return last if last is not None and last.head_before == task.head_sha else None

    async def _start(self, work: TaskWork, run: TaskRun) -> timedelta:
        await self._runs.start(work.caller, work.task, run, check_request(work))
        return POLL

    async def _judge(self, work: TaskWork, run: TaskRun, result: RunResult) -> timedelta:
        move = TaskMove(
            stage=Stage.PUBLISHING,
            reason=f"The checks {CHECK_WORDS.get(result.outcome, result.outcome)}.",
            values={"report": _with_result(work, result)},
        )
        if result.outcome is RunOutcome.LOST:
            move = TaskMove()  # they are run again
        elif result.outcome is RunOutcome.FAILED:
            move = await self._after_failure(work, run, result)
        ended = EndedRun(result=result, head_after=work.task.head_sha, move=move)
        await self._runs.end(work.task, run, ended)
        return AGAIN

    async def _after_failure(self, work: TaskWork, run: TaskRun, result: RunResult) -> TaskMove:
        values = {"report": _with_result(work, result)}
        fixes = await self._count_failures(work.task.id)
        if fixes >= work.settings.max_fixes:
            return Blocked(
                WaitKind.CHECKS_FAILED,
                f"The checks still fail after {fixes} fixes. Send the agent a message, or approve to publish "
                f"the work as it is. Their last output:\n\n{result.summary[-_LONGEST_OUTPUT:]}",
                actions=("message", "approve", "retry", "cancel"),
                head=work.task.head_sha,
            ).move(values)
        await self._tasks.add_message(
            work.task.id,
            origin=MessageOrigin.SERVER,
            origin_ref=f"checks/{run.number}",
            text=f"The checks of the repository fail: `{work.settings.checks}`. Fix the cause and commit.",
            data=with_quotes(
                Quote(about="Their last output:", text=result.summary[-_LONGEST_OUTPUT:])
            ),
        )
        return TaskMove(stage=Stage.FIXING, reason="The checks failed.", values=values)

    async def _count_failures(self, task_id: str) -> int:
        """Count the failed checks since some have passed."""
        async with without_transaction(self._sessions) as session:
            runs = await TaskHistoryRepository(session).list_runs_of_attempt(task_id, 0)
        failures = 0
        for run in runs:
            if run.kind == RunKind.CHECKS and run.ended_at is not None:
                failures = failures + 1 if run.outcome == RunOutcome.FAILED else 0
        return failures


def check_request(work: TaskWork) -> CommandRequest:
    """Describe the command of the repository's checks."""
    settings = work.settings
    assert settings.checks is not None
    return CommandRequest(
        cmd=settings.checks, cwd=work.task.directory, timeout=settings.checks_timeout
    )


def _result_of(run: TaskRun) -> RunResult:
    assert run.outcome is not None
    return RunResult(outcome=RunOutcome(run.outcome), summary=run.summary or "")


def _with_result(work: TaskWork, result: RunResult) -> dict[str, Any]:
    checks = {
        "command": work.settings.checks,
        "outcome": result.outcome,
        "words": CHECK_WORDS.get(result.outcome, result.outcome),
        "head": work.task.head_sha,
    }
    return {**work.task.report, "checks": checks}
