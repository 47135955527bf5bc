import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sandbox_server.db.models import TaskMessage, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.stages import RunKind, RunOutcome
from sandbox_server.jobs.kinds import TASK_SAVE
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.stages.after_run import AfterRun
from sandbox_server.tasks.stages.agent_requests import (
    ANSWER_FILES,
    AgentRequests,
    find_cause,
    poll_after,
)
from sandbox_server.tasks.stages.budget import require_budget
from sandbox_server.tasks.stages.checkout import TaskCheckout
from sandbox_server.tasks.stages.runs import NewRun, TaskRuns
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, TaskWork


class AgentWork:
    """Working and fixing tasks: one run after the other, until no message is left to be told."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        checkout: TaskCheckout,
        runs: TaskRuns,
        requests: AgentRequests,
        after_run: AfterRun,
        save_every: timedelta,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._checkout = checkout
        self._runs = runs
        self._requests = requests
        self._after_run = after_run
        self._save_every = save_every

    async def work(self, work: TaskWork) -> timedelta | None:
        """Begin, start, follow or end a run."""
        run = await self._runs.find_open(work.task.id)
        if run is None:
            return await self._begin(work)
        if run.command_id is None:
            return await self._start(work, run)
        command = await self._runs.read_command(run)
        result = await self._runs.read_result(command)
        if result is None:
            return await self._follow(work, run)
        return await self._after_run.end(work, run, result)

    async def _begin(self, work: TaskWork) -> timedelta:
        task = work.task
        untold = await self._list_untold(task.id)
        last = await self._runs.find_last(task.id, RunKind.AGENT)
        is_lost = last is not None and last.outcome == RunOutcome.LOST
        if not untold and last is not None and not is_lost:
            return await self._after_run.go_on(work, last)
        require_budget(work)
        used = await self._sandboxes.use(work)
        _, head_before = await asyncio.gather(
            self._checkout.remove_files(used, task, *ANSWER_FILES),
            self._checkout.find_head(used, task),
        )
        cause, cause_ref = find_cause(untold, last)
        new = NewRun(
            kind=RunKind.AGENT,
            cause=cause,
            cause_ref=cause_ref,
            sandbox_id=used.row.id,
            head_before=head_before,
            told=[message.id for message in untold],
        )
        await self._runs.begin(task, new, values={"runs": task.runs + 1})
        return AGAIN

    async def _start(self, work: TaskWork, run: TaskRun) -> timedelta:
        async with without_transaction(self._sessions) as session:
            told = await TaskHistoryRepository(session).list_told(work.task.id, run.number)
        request = await self._requests.build(work, run, told)
        await self._runs.start(work.caller, work.task, run, request)
        async with self._sessions.begin() as session:
            await JobRepository(session).due(TASK_SAVE, work.task.id, work.now + self._save_every)
        return poll_after(work, run)

    async def _follow(self, work: TaskWork, run: TaskRun) -> timedelta:
        await self._sandboxes.keep_awake(work)
        untold = await self._list_untold(work.task.id)
        since = [message.created_at for message in untold if message.data.get("interrupt")]
        if since:
            used = await self._sandboxes.use(work)
            await self._runs.interrupt(work.caller, used, run, waited=work.now - min(since))
        return poll_after(work, run)

    async def _list_untold(self, task_id: str) -> Sequence[TaskMessage]:
        async with without_transaction(self._sessions) as session:
            return await TaskHistoryRepository(session).list_untold(task_id)
