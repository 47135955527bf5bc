import logging
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from sandbox_server.db.models import Task, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError, GitError, SaveFailed, SaveTooLarge
from sandbox_server.domain.state import State
from sandbox_server.domain.tasks.forges import GitAccess
from sandbox_server.domain.tasks.stages import RunOutcome, Stage
from sandbox_server.forges.service import Forges
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.git.process import run_git
from sandbox_server.tasks.pulls import PullRequestRepository
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.stages.runs import EndedRun, RunResult, TaskRuns, end_processes
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, SandboxLost, TaskWork
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions

log = logging.getLogger(__name__)

_SOON = timedelta(seconds=1)
_KEPT = "The sandbox was kept, because its work could not be saved"


class Ending:
    """Tasks that are to end: interrupt, save, delete the branch of a merged one, delete the sandbox."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        saves: TaskSaves,
        runs: TaskRuns,
        repositories: TaskRepositories,
        forges: Forges,
        transitions: TaskTransitions,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._saves = saves
        self._runs = runs
        self._repositories = repositories
        self._forges = forges
        self._transitions = transitions

    async def work(self, work: TaskWork) -> timedelta | None:
        """Do the next of what is left; nothing is deleted before it is saved."""
        task = work.task
        if task.outcome is None:
            cancelled = work.ending(Stage.CANCELLED, "Cancelled by API request.")
            await self._transitions.commit(task, cancelled)
            return AGAIN
        run = await self._runs.find_open(task.id)
        if run is not None:
            return await self._end_run(work, run)
        reason = task.stage_reason or f"Ended: {task.outcome}."
        try:
            await self._save(work)
        except (SaveTooLarge, SaveFailed) as error:
            return await self._end(work, f"{reason} {_KEPT}: {error}")
        if task.outcome == Stage.MERGED and not work.settings.keep_branch:
            await self._delete_branch(work)
        if not await self._sandboxes.delete(work):
            return _SOON
        return await self._end(work, reason)

    async def _end_run(self, work: TaskWork, run: TaskRun) -> timedelta:
        if run.command_id is None:
            return await self._close(work, run, _result("The run was cancelled before it began."))
        result = await self._runs.read_result(await self._runs.read_command(run))
        if result is not None:
            # A failed save is repeated, and reported, once the run has ended.
            with suppress(SaveTooLarge, SaveFailed):
                await self._save(work, run)
            return await self._close(work, run, result)
        try:
            used = await self._sandboxes.use(work)
            await self._runs.interrupt(work.caller, used, run, waited=work.ending_for)
        except SandboxLost:
            return await self._close(work, run, _result("The sandbox was lost."))
        return _SOON

    async def _close(self, work: TaskWork, run: TaskRun, result: RunResult) -> timedelta:
        interrupted = replace(result, outcome=RunOutcome.INTERRUPTED)
        await self._runs.end(work.task, run, EndedRun(result=interrupted))
        return AGAIN

    async def _save(self, work: TaskWork, run: TaskRun | None = None) -> None:
        """Save what the sandbox has once the run has ended; a paused one was saved when it was paused."""
        row = await self._sandboxes.find(work)
        if row is None or work.task.base_sha is None or not work.task.sandbox_ready:
            return
        if row.state is State.RUNNING:
            try:
                used = await self._sandboxes.use(work)
            except SandboxLost:
                return
            if run is not None:
                await end_processes(used, run)
            await self._saves.take(work.task, used, cause="end")

    async def _delete_branch(self, work: TaskWork) -> None:
        """Delete the branch at the forge if it is as we left it and no other pull request is based on it."""
        async with without_transaction(self._sessions) as session:
            if await PullRequestRepository(session).is_base_of_open(
                work.repository.id, work.branch
            ):
                return
        try:
            async with self._repositories.open(work.repository, work.task.id) as repository:
                await self._push_deletion(work, repository)
        except (ForgeError, GitError) as error:
            log.info("branch not deleted task_id=%s error=%s", work.task.id, error)

    async def _push_deletion(self, work: TaskWork, repository: BareRepository) -> None:
        adapter = await self._forges.adapter(work.repository.forge_id)
        credential = await adapter.git_credential(work.facts, GitAccess.WRITE)
        ref, expected = f"refs/heads/{work.branch}", work.task.published_sha
        if (await repository.ls_remote(credential, ref)).get(ref) != expected:
            return
        lease = f"--force-with-lease={ref}:{expected}"
        await run_git(
            *("push", "--no-verify", lease, credential.url, f":{ref}"),
            directory=repository.path,
            credential=credential,
        )

    async def _end(self, work: TaskWork, reason: str) -> timedelta | None:
        task: Task = work.task
        assert task.outcome is not None
        move = TaskMove(stage=Stage(task.outcome), reason=reason)
        await self._transitions.commit(task, move)
        await self._repositories.remove(task.id)
        return None


def _result(summary: str) -> RunResult:
    return RunResult(outcome=RunOutcome.INTERRUPTED, summary=summary)
