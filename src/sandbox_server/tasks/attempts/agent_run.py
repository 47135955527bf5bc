from datetime import timedelta

from sandbox_server.db.models import TaskRun
from sandbox_server.db.session import Sessions
from sandbox_server.domain.tasks.stages import AttemptState, RunKind, RunOutcome
from sandbox_server.jobs.kinds import TASK_SAVE
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.tasks.attempts.runs import AttemptRuns
from sandbox_server.tasks.attempts.sandboxes import AttemptSandboxes
from sandbox_server.tasks.attempts.transitions import AttemptMove, AttemptTransitions
from sandbox_server.tasks.attempts.work import AttemptWork
from sandbox_server.tasks.stages.after_run import AfterRun, require_changes
from sandbox_server.tasks.stages.agent_requests import (
    ANSWER_FILES,
    AgentRequests,
    find_cause,
    poll_after,
)
from sandbox_server.tasks.stages.budget import is_spent, require_budget, spent_budget
from sandbox_server.tasks.stages.checkout import TaskCheckout
from sandbox_server.tasks.stages.runs import EndedRun, NewRun, RunResult
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN


class AttemptStart:
    """Queued attempts: a sandbox from the snapshot, and what was saved of the attempt before."""

    def __init__(self, sandboxes: AttemptSandboxes, transitions: AttemptTransitions) -> None:
        self._sandboxes = sandboxes
        self._transitions = transitions

    async def work(self, work: AttemptWork) -> timedelta:
        """Create the sandbox, then wait for it."""
        if work.attempt.sandbox_id is None:
            await self._sandboxes.create(work)
            return AGAIN
        await self._sandboxes.restore(work)
        move = AttemptMove(
            state=AttemptState.WORKING,
            reason="The sandbox is ready.",
            values={"sandbox_ready": True},
        )
        await self._transitions.commit(work.attempt, move)
        return AGAIN


class AttemptAgent:
    """Working attempts: one run after the other, until no message is left to be told."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        checkout: TaskCheckout,
        runs: AttemptRuns,
        requests: AgentRequests,
        after_run: AfterRun,
        save_every: timedelta,
        transitions: AttemptTransitions,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._checkout = checkout
        self._runs = runs
        self._requests = requests
        self._after_run = after_run
        self._save_every = save_every
        self._transitions = transitions

    async def work(self, work: AttemptWork) -> timedelta:
        """Begin, start, follow or end a run."""
        run = await self._runs.find_open(work.attempt)
        if run is None:
            return await self._begin(work)
        if run.command_id is None:
            return await self._start(work, run)
        result = await self._runs.commands.read_result(await self._runs.commands.read_command(run))
        if result is None:
            return await self._follow(work, run)
        return await self._end(work, run, result)

    async def _begin(self, work: AttemptWork) -> timedelta:
        untold = await self._runs.list_untold(work.attempt)
        last = await self._runs.find_last(work.attempt, RunKind.AGENT)
        is_lost = last is not None and last.outcome == RunOutcome.LOST
        if not untold and last is not None and not is_lost:
            return await self._go_on(work, last)
        require_budget(work)
        used = await self._sandboxes.use(work)
        await self._checkout.remove_files(used, work.task, *ANSWER_FILES)
        cause, cause_ref = find_cause(untold, last)
        new = NewRun(
            kind=RunKind.AGENT,
            cause=cause,
            cause_ref=cause_ref,
            sandbox_id=used.row.id,
            head_before=await self._checkout.find_head(used, work.task),
            told=[message.id for message in untold],
        )
        await self._runs.begin(work.attempt, new)
        return AGAIN

    async def _start(self, work: AttemptWork, run: TaskRun) -> timedelta:
        request = await self._requests.build(work, run, await self._runs.list_told(run))
        await self._runs.start(work, run, request)
        async with self._sessions.begin() as session:
            await JobRepository(session).due(TASK_SAVE, work.task.id, work.now + self._save_every)
        return poll_after(work, run)

    async def _follow(self, work: AttemptWork, run: TaskRun) -> timedelta:
        await self._sandboxes.keep_awake(work)
        untold = await self._runs.list_untold(work.attempt)
        since = [message.created_at for message in untold if message.data.get("interrupt")]
        if since or is_spent(work):
            used = await self._sandboxes.use(work)
            waited = work.now - min(since, default=work.now)
            await self._runs.commands.interrupt(work.caller, used, run, waited=waited)
        return poll_after(work, run)

    async def _end(self, work: AttemptWork, run: TaskRun, result: RunResult) -> timedelta:
        ended = await self._after_run.conclude(work, run, result)
        waits = ended.move
        if waits.awaits is not None and is_spent(work):
            waits = spent_budget(work).move()
        values = {**ended.move.values, "awaits": waits.awaits}
        move = AttemptMove(values=values)
        if waits.awaits is not None:
            move = AttemptMove(state=AttemptState.FINISHED, reason=waits.reason, values=values)
        done = EndedRun(result=result, head_after=ended.head_after)
        await self._runs.end(work.attempt, run, done, move)
        return AGAIN

    async def _go_on(self, work: AttemptWork, last: TaskRun) -> timedelta:
        require_changes(work, last)
        move = AttemptMove(state=AttemptState.CHECKING, reason="The agent has finished.")
        await self._transitions.commit(work.attempt, move)
        return AGAIN
