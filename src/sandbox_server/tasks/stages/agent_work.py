from collections.abc import Sequence
from datetime import timedelta

from sandbox_server.db.models import TaskMessage, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.agents import AgentRunRequest
from sandbox_server.domain.commands import CommandRequest
from sandbox_server.domain.tasks.stages import MessageOrigin, RunKind, RunOutcome
from sandbox_server.jobs.kinds import TASK_SAVE
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.tasks.automatic_saves import SAVE_EVERY
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.stages.after_run import AfterRun
from sandbox_server.tasks.stages.budget import require_budget
from sandbox_server.tasks.stages.checkout import TaskCheckout
from sandbox_server.tasks.stages.prompt import QUESTION_FILE, REPORT_FILE, PromptFacts, build_prompt
from sandbox_server.tasks.stages.runs import NewRun, TaskRuns
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.task_file import (
    SUMMARY_FILE,
    TASK_FILE,
    TaskFacts,
    describe_task,
)
from sandbox_server.tasks.stages.work import AGAIN, TaskWork

_SHORTEST_POLL = timedelta(seconds=0.5)
_LONGEST_POLL = timedelta(seconds=5)
_POLLS_PER_RUN = 10
_PROMPTS = "/tmp/.task-prompts"  # noqa: S108 - in the sandbox
_CAUSES = {MessageOrigin.API: "message", MessageOrigin.SERVER: "server"}
_RETRY = "retry"
_ANSWERS = (REPORT_FILE, QUESTION_FILE, SUMMARY_FILE)
_MOST_MESSAGES = 200


class AgentWork:
    """Working and fixing tasks: one run after the other, until no message is left to be told."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        checkout: TaskCheckout,
        runs: TaskRuns,
        after_run: AfterRun,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._checkout = checkout
        self._runs = runs
        self._after_run = after_run

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
        await self._checkout.remove_files(used, task, *_ANSWERS)
        cause, cause_ref = _cause_of(untold, last)
        new = NewRun(
            kind=RunKind.AGENT,
            cause=cause,
            cause_ref=cause_ref,
            sandbox_id=used.row.id,
            head_before=await self._checkout.find_head(used, task),
            told=[message.id for message in untold],
        )
        await self._runs.begin(task, new, values={"runs": task.runs + 1})
        return AGAIN

    async def _start(self, work: TaskWork, run: TaskRun) -> timedelta:
        prompt = await self._build_prompt(work, run)
        await self._write_task_file(work, run)
        if work.task.agent is not None:
            await self._runs.start_agent(work.caller, work.task, run, _agent_request(work, prompt))
        else:
            await self._runs.start(
                work.caller, work.task, run, await self._command_request(work, run, prompt)
            )
        async with self._sessions.begin() as session:
            await JobRepository(session).due(TASK_SAVE, work.task.id, work.now + SAVE_EVERY)
        return _SHORTEST_POLL

    async def _follow(self, work: TaskWork, run: TaskRun) -> timedelta:
        await self._sandboxes.keep_awake(work)
        if any(message.data.get("interrupt") for message in await self._list_untold(work.task.id)):
            await self._runs.interrupt(work.caller, run)
        age = work.now - (run.started_at or work.now)
        return min(max(age / _POLLS_PER_RUN, _SHORTEST_POLL), _LONGEST_POLL)

    async def _list_untold(self, task_id: str) -> Sequence[TaskMessage]:
        async with without_transaction(self._sessions) as session:
            return await TaskHistoryRepository(session).list_untold(task_id)

    async def _build_prompt(self, work: TaskWork, run: TaskRun) -> str:
        task = work.task
        async with without_transaction(self._sessions) as session:
            messages = await TaskHistoryRepository(session).list_told(task.id, run.number)
        facts = PromptFacts(
            title=task.title,
            branch=work.branch,
            base=task.base_ref,
            is_first=task.runs <= 1,
            was_lost=run.cause == _RETRY,
            checks=work.settings.checks,
        )
        return build_prompt(facts, messages)

    async def _write_task_file(self, work: TaskWork, run: TaskRun) -> None:
        """Describe the task to the agent's tools."""
        task, used = work.task, await self._sandboxes.use(work)
        async with without_transaction(self._sessions) as session:
            history = TaskHistoryRepository(session)
            published = task.published_sha
            facts = TaskFacts(
                run_number=run.number,
                messages=await history.list_messages(task.id, limit=_MOST_MESSAGES),
                last_checks=await history.find_last_run(task.id, RunKind.CHECKS),
                forge_checks=[]
                if published is None
                else await history.list_checks(task.repository_id, published),
            )
        path = f"{task.directory}/{TASK_FILE}"
        await self._checkout.write_file(used, path, describe_task(work, facts))

    async def _command_request(self, work: TaskWork, run: TaskRun, prompt: str) -> CommandRequest:
        task = work.task
        assert task.agent_command is not None
        used = await self._sandboxes.use(work)
        path = f"{_PROMPTS}/{task.id}-{run.number}.md"
        await self._checkout.write_file(used, path, prompt.encode())
        return CommandRequest(
            cmd=task.agent_command,
            cwd=task.directory,
            timeout=work.settings.run_timeout,
            envs={
                "TASK_ID": task.id,
                "TASK_RUN": str(run.number),
                "TASK_BRANCH": work.branch,
                "TASK_PROMPT_FILE": path,
                "TASK_REPORT_FILE": f"{task.directory}/{REPORT_FILE}",
                "TASK_QUESTION_FILE": f"{task.directory}/{QUESTION_FILE}",
            },
        )


def _agent_request(work: TaskWork, prompt: str) -> AgentRunRequest:
    task = work.task
    assert task.agent is not None
    return AgentRunRequest(
        agent=task.agent,
        prompt=prompt,
        model=task.model,
        cwd=task.directory,
        session_id=task.session_id,
        timeout=work.settings.run_timeout,
    )


def _cause_of(untold: Sequence[TaskMessage], last: TaskRun | None) -> tuple[str, str]:
    if not untold:
        assert last is not None
        return _RETRY, str(last.number)
    newest = untold[-1]
    if newest.origin_ref == "created":
        return "created", newest.id
    return _CAUSES.get(MessageOrigin(newest.origin), newest.origin), newest.id
