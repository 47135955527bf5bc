from datetime import timedelta

from sandbox_server.db.models import Task, TaskRun, TaskSave
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import SaveTooLarge
from sandbox_server.domain.tasks.stages import MessageOrigin, PullRequestWish, RunOutcome, Stage
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.tasks.following.reruns import request_rerun
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.outbox_repository import WriteOwner
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.stages.checkout import SettledBranch, TaskCheckout
from sandbox_server.tasks.stages.prompt import FLAKY_FILE, QUESTION_FILE, REPORT_FILE
from sandbox_server.tasks.stages.runs import EndedRun, RunResult, TaskRuns, end_processes
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.task_file import SUMMARY_FILE
from sandbox_server.tasks.stages.work import AGAIN, Blocked, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions, apply_move, lock_seen
from sandbox_server.tasks.wording import conventional

_LONGEST_WORDS = 4000
_LONGEST_TITLE = 200
_FROM_PEOPLE = frozenset({MessageOrigin.API, MessageOrigin.COMMENT, MessageOrigin.REVIEW})
_CUT_SHORT = frozenset({RunOutcome.INTERRUPTED, RunOutcome.TIMED_OUT, RunOutcome.LOST})
"""Outcomes of runs that may have left processes, which would write beside the next run."""


class AfterRun:
    """Finish a run of the agent: save and commit its work, then move the task on or have it wait."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        checkout: TaskCheckout,
        saves: TaskSaves,
        runs: TaskRuns,
        transitions: TaskTransitions,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._checkout = checkout
        self._saves = saves
        self._runs = runs
        self._transitions = transitions

    async def end(self, work: TaskWork, run: TaskRun, result: RunResult) -> timedelta:
        """End a run whose command has ended."""
        await self._runs.end(work.task, run, await self.conclude(work, run, result))
        return AGAIN

    async def conclude(self, work: TaskWork, run: TaskRun, result: RunResult) -> EndedRun:
        """Save first, then commit what the agent has left, and read its report; repeatable."""
        used = await self._sandboxes.use(work)
        if result.outcome in _CUT_SHORT:
            await end_processes(used, run)
        try:
            settled, head = await self._keep(work, used, run, result)
        except SaveTooLarge as error:
            return EndedRun(result=result, move=_too_large(error).move())
        report = await self._report(work.task, used, result)
        values = {"head_sha": settled.head or head, "report": report}
        blocked = await self._blocked(work, used, result, settled)
        move = TaskMove(values=values) if blocked is None else blocked.move(values)
        return EndedRun(result=result, head_after=settled.head, move=move)

    async def go_on(self, work: TaskWork, last: TaskRun) -> timedelta:
        """Leave the stage after a run that nothing is left to be told to."""
        task = work.task
        if task.pull_request == PullRequestWish.COMMENT:
            move = TaskMove(stage=Stage.PUBLISHING, reason="The agent has reported.")
            await self._transitions.commit(task, move)
            return AGAIN
        is_unchanged = last.head_after == last.head_before
        if is_unchanged and task.report.get("flaky") and await self._rerun(work, last):
            return AGAIN
        require_changes(work, last)
        if task.published_sha is not None and is_unchanged:
            return await self._without_change(work, last)
        move = TaskMove(stage=Stage.CHECKING, reason="The agent has finished.")
        await self._transitions.commit(task, move)
        return AGAIN

    async def _rerun(self, work: TaskWork, last: TaskRun) -> bool:
        """Have failed jobs rerun that the agent reports as flaky; returns False if they were before."""
        task = work.task
        async with self._sessions.begin() as session:
            row = await lock_seen(session, task)
            pull = await TaskRepository(session).find_pull(task.id)
            if pull is None and task.head_sha not in (None, task.base_sha):
                return False  # there is work to publish
            said = await request_rerun(
                session,
                WriteOwner(forge_id=work.repository.forge_id, repository_id=work.repository.id),
                await TaskHistoryRepository(session).list_told(task.id, last.number),
                reason=str(task.report["flaky"]),
                number=None if pull is None else pull.number,
            )
            if said is not None:
                followed = TaskMove(stage=Stage.IN_REVIEW, reason=said)
                move = work.ending(Stage.DONE, said) if pull is None else followed
                await apply_move(session, row, move)
        return said is not None

    async def _keep(
        self, work: TaskWork, used: UsableSandbox, run: TaskRun, result: RunResult
    ) -> tuple[SettledBranch, str | None]:
        """Save the work, and commit what is left of a successful run; gives the head that was saved, too."""
        save = await self._save(work, used, f"run {run.number}")
        if result.outcome is RunOutcome.SUCCEEDED:
            return await self._settle(work, used, run), save.head_sha
        return SettledBranch(head=save.head_sha), save.head_sha

    async def _save(self, work: TaskWork, used: UsableSandbox, cause: str) -> TaskSave:
        return await self._saves.take(work.task, used, cause=cause, attempt=work.attempt_number)

    async def _settle(self, work: TaskWork, used: UsableSandbox, run: TaskRun) -> SettledBranch:
        message = conventional(work.task.title)
        settled = await self._checkout.settle(used, work.task, message=message)
        if settled.head is not None:
            await self._save(work, used, f"run {run.number}, committed")
        return settled

    async def _blocked(
        self, work: TaskWork, used: UsableSandbox, result: RunResult, settled: SettledBranch
    ) -> Blocked | None:
        question = await self._checkout.take_file(used, work.task, QUESTION_FILE)
        if question is not None and result.outcome is RunOutcome.SUCCEEDED:
            return Blocked(WaitKind.QUESTION, question, actions=("message", "cancel"))
        if settled.problem is not None:
            return Blocked(
                WaitKind.RUN_FAILED,
                f"{settled.problem} Send the agent a message that tells what to do with it.",
            )
        if result.outcome in (RunOutcome.SUCCEEDED, RunOutcome.LOST):
            return None
        if result.outcome is RunOutcome.INTERRUPTED and await self._has_untold(work):
            return None
        return Blocked(
            WaitKind.RUN_FAILED,
            f"The run has ended as {result.outcome}: {result.summary[-_LONGEST_WORDS:] or 'no output'}",
        )

    async def _report(
        self, task: Task, used: UsableSandbox, result: RunResult
    ) -> dict[str, object]:
        """Keep what the agent reported last: title and body of the pull request, and its last words."""
        told = await self._checkout.take_file(used, task, SUMMARY_FILE)
        flaky = await self._checkout.take_file(used, task, FLAKY_FILE)
        summary = (told or flaky or result.summary)[-_LONGEST_WORDS:]
        report = {**task.report, "summary": summary, "flaky": flaky}
        text = await self._checkout.take_file(used, task, REPORT_FILE)
        if text is not None:
            title, _, body = text.partition("\n")
            report |= {"title": title.lstrip("# ").strip()[:_LONGEST_TITLE], "body": body.strip()}
        return report

    async def _has_untold(self, work: TaskWork) -> bool:
        async with without_transaction(self._sessions) as session:
            history = TaskHistoryRepository(session)
            return bool(await history.list_untold(work.task.id, attempt=work.attempt_number))

    async def _without_change(self, work: TaskWork, last: TaskRun) -> timedelta:
        """Return to the review if people have only asked something; failed checks need a change."""
        async with without_transaction(self._sessions) as session:
            told = await TaskHistoryRepository(session).list_told(work.task.id, last.number)
        if not any(message.origin in _FROM_PEOPLE for message in told):
            raise Blocked(
                WaitKind.NOTHING_CHANGED,
                f"The agent changed nothing. Its last words: {_last_words(last)}",
            )
        move = TaskMove(stage=Stage.IN_REVIEW, reason="The agent answered without a change.")
        await self._transitions.commit(work.task, move)
        return AGAIN


def require_changes(work: TaskWork, last: TaskRun) -> None:
    """Raise `Blocked` if the work is what it began from."""
    if work.task.head_sha in (None, work.task.base_sha):
        raise Blocked(
            WaitKind.NOTHING_CHANGED,
            f"Nothing was changed. The agent's last words: {_last_words(last)}",
        )


def _too_large(error: SaveTooLarge) -> Blocked:
    """Have the agent told to make its work smaller; it stays in the sandbox."""
    return Blocked(
        WaitKind.SAVE,
        f"{error} It is in the sandbox only. Tell the agent to remove large files from its commits, "
        "or to list them in .gitignore.",
        actions=("message", "cancel"),
    )


def _last_words(run: TaskRun) -> str:
    return (run.summary or "")[-_LONGEST_WORDS:] or "none"
