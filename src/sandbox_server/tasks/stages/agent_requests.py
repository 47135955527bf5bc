from collections.abc import Sequence
from datetime import timedelta

from sandbox_server.agents.requests import to_command_request
from sandbox_server.db.models import TaskMessage, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.agents import AgentRunRequest
from sandbox_server.domain.commands import CommandRequest
from sandbox_server.domain.tasks.stages import MessageOrigin, PullRequestWish, RunKind
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.stages.checkout import TaskCheckout
from sandbox_server.tasks.stages.prompt import (
    FLAKY_FILE,
    QUESTION_FILE,
    REPORT_FILE,
    PromptFacts,
    build_prompt,
)
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.task_file import (
    SUMMARY_FILE,
    TASK_FILE,
    TaskFacts,
    describe_task,
)
from sandbox_server.tasks.stages.work import TaskWork

ANSWER_FILES = (REPORT_FILE, QUESTION_FILE, SUMMARY_FILE, FLAKY_FILE)

_SHORTEST_POLL = timedelta(seconds=0.5)
_LONGEST_POLL = timedelta(seconds=5)
_POLLS_PER_RUN = 10
_PROMPTS = "/tmp/.task-prompts"  # noqa: S108 - in the sandbox
_CAUSES = {MessageOrigin.API: "message", MessageOrigin.SERVER: "server"}
_RETRY = "retry"
_MOST_MESSAGES = 200


class AgentRequests:
    """Builds the command of a run of the agent, and writes what it reads into its sandbox."""

    def __init__(
        self, sessions: Sessions, sandboxes: TaskSandboxes, checkout: TaskCheckout
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._checkout = checkout

    async def build(
        self, work: TaskWork, run: TaskRun, messages: Sequence[TaskMessage]
    ) -> CommandRequest:
        """Build the command of a run that is told these messages; repeatable."""
        prompt = build_prompt(_prompt_facts(work, run), messages)
        await self._write_task_file(work, run)
        if work.task.agent is not None:
            return to_command_request(_agent_request(work, prompt))
        return await self._command_request(work, run, prompt)

    async def _write_task_file(self, work: TaskWork, run: TaskRun) -> None:
        """Describe the task to the agent's tools."""
        task, used = work.task, await self._sandboxes.use(work)
        async with without_transaction(self._sessions) as session:
            history = TaskHistoryRepository(session)
            published = task.published_sha or task.labels.get("sha")
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
                "TASK_FLAKY_FILE": f"{task.directory}/{FLAKY_FILE}",
                **({"TASK_ATTEMPT": str(run.attempt)} if run.attempt else {}),
            },
        )


def find_cause(untold: Sequence[TaskMessage], last: TaskRun | None) -> tuple[str, str]:
    """Name the cause of the next run, and what exactly it is: no cause starts two runs."""
    if not untold:
        assert last is not None
        return _RETRY, str(last.number)
    newest = untold[-1]
    if newest.origin_ref == "created":
        return "created", newest.id
    return _CAUSES.get(MessageOrigin(newest.origin), newest.origin), newest.id


def poll_after(work: TaskWork, run: TaskRun) -> timedelta:
    """Choose when to look again at a run: seldom at a long one."""
    age = work.now - (run.started_at or work.now)
    return min(max(age / _POLLS_PER_RUN, _SHORTEST_POLL), _LONGEST_POLL)


def _prompt_facts(work: TaskWork, run: TaskRun) -> PromptFacts:
    return PromptFacts(
        title=work.task.title,
        branch=work.branch,
        base=work.task.base_ref,
        is_first=work.is_first_run,
        was_lost=run.cause == _RETRY,
        checks=work.settings.checks,
        only_report=work.task.pull_request == PullRequestWish.COMMENT,
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
