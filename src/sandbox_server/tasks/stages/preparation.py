from dataclasses import replace
from datetime import timedelta

from sandbox_server.db.models import TaskRun
from sandbox_server.domain.commands import CommandRequest
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.tasks.events import TaskCheckedOut
from sandbox_server.domain.tasks.stages import MessageOrigin, RunKind, RunOutcome
from sandbox_server.forges.service import Forges
from sandbox_server.git.checkouts import CheckedOut, CheckoutRequest, Checkouts
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.tasks.quotes import Quote, with_quotes
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.stages.runs import EndedRun, NewRun, RunResult, TaskRuns
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, TaskWork
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions
from sandbox_server.tasks.wording import identity_of

_POLL = timedelta(seconds=1)
_CAUSE = "prepare"
_LONGEST_OUTPUT = 8000


class Preparation:
    """Preparing tasks: sandbox, checkout, saved work, setup."""

    def __init__(
        self,
        *,
        sandboxes: TaskSandboxes,
        checkouts: Checkouts,
        saves: TaskSaves,
        runs: TaskRuns,
        forges: Forges,
        tasks: Tasks,
        transitions: TaskTransitions,
    ) -> None:
        self._sandboxes = sandboxes
        self._checkouts = checkouts
        self._saves = saves
        self._runs = runs
        self._forges = forges
        self._tasks = tasks
        self._transitions = transitions

    async def work(self, work: TaskWork) -> timedelta | None:
        """Do the next of: create the sandbox, check out, restore, set up, begin to work."""
        task = work.task
        if task.sandbox_id is None:
            await self._sandboxes.create(work)
            return AGAIN
        if task.sandbox_ready:
            return await self._begin_work(work)
        setup = await self._runs.find(task.id, RunKind.SETUP, _CAUSE, task.sandbox_id)
        if setup is not None:
            return await self._follow_setup(work, setup)
        return await self._check_out(work)

    async def _begin_work(self, work: TaskWork) -> timedelta:
        values = {"sandbox_ready": True}
        move = TaskMove(stage=work.working_stage, reason="The sandbox is ready.", values=values)
        await self._transitions.commit(work.task, move)
        return AGAIN

    async def _check_out(self, work: TaskWork) -> timedelta:
        used = await self._sandboxes.use(work)
        task, forge = work.task, await self._forges.find_row(work.repository.forge_id)
        done = await self._checkouts.check_out(
            used,
            CheckoutRequest(
                repository=work.repository,
                directory=task.directory,
                branch=work.branch,
                base_ref=task.base_ref,
                base_sha=task.base_sha,
                identity=identity_of(forge),
            ),
        )
        if task.base_sha != done.base_sha:
            noted = TaskMove(values={"base_sha": done.base_sha}, events=[_event(work, done)])
            work = replace(work, task=await self._transitions.commit(task, noted))
        await self._restore(work, used)
        return await self._begin_setup(work)

    async def _restore(self, work: TaskWork, used: UsableSandbox) -> None:
        """Put the saved work into a sandbox that replaces a lost one."""
        last = await self._saves.find_last(work.task.id)
        if last is not None:
            await self._saves.restore(work.task, used, last)

    async def _begin_setup(self, work: TaskWork) -> timedelta:
        task, settings = work.task, work.settings
        assert task.sandbox_id is not None
        if settings.setup is None or await self._sandboxes.is_prepared(work):
            return await self._begin_work(work)
        new = NewRun(
            kind=RunKind.SETUP,
            cause=_CAUSE,
            cause_ref=task.sandbox_id,
            sandbox_id=task.sandbox_id,
            head_before=None,
        )
        await self._runs.begin(task, new)
        return AGAIN

    async def _follow_setup(self, work: TaskWork, run: TaskRun) -> timedelta:
        task, settings = work.task, work.settings
        if run.command_id is None:
            assert settings.setup is not None
            request = CommandRequest(
                cmd=settings.setup, cwd=task.directory, timeout=settings.setup_timeout
            )
            await self._runs.start(work.caller, task, run, request)
            return _POLL
        result = await self._runs.read_check_result(await self._runs.read_command(run))
        if result is None:
            await self._sandboxes.keep_awake(work)
            return _POLL
        await self._tell(work, run, result)
        move = TaskMove(values={"sandbox_ready": True})
        await self._runs.end(task, run, EndedRun(result=result, move=move))
        return AGAIN

    async def _tell(self, work: TaskWork, run: TaskRun, result: RunResult) -> None:
        """Tell the agent that the setup failed: it may be part of the work."""
        if result.outcome is RunOutcome.SUCCEEDED:
            return
        await self._tasks.add_message(
            work.task.id,
            origin=MessageOrigin.SERVER,
            origin_ref=f"setup/{run.number}",
            text=f"The setup of the repository has ended as {result.outcome}: `{work.settings.setup}`.",
            data=with_quotes(
                Quote(about="Its last output:", text=result.summary[-_LONGEST_OUTPUT:])
            ),
        )


def _event(work: TaskWork, done: CheckedOut) -> TaskCheckedOut:
    stale = " The forge did not answer: the base is what the mirror knew." if done.is_stale else ""
    pointers = "" if done.pointers is None else f" {done.pointers}"
    return TaskCheckedOut(
        task_id=work.task.id,
        cause=Cause.TASK,
        actor=SERVER,
        reason=f"Checked out {work.task.base_ref} ({done.rung}, {done.seconds:.2f} s).{stale}{pointers}",
        method=done.rung,
        seconds=done.seconds,
        base_sha=done.base_sha,
    )
