"""The subcommands run and watch."""

import sys

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import CliError, UsageError
from sandbox_client.cli.task_verbs import AGENTS
from sandbox_client.cli.tasks.follower import TaskFollower
from sandbox_client.cli.tasks.lookup import find_task
from sandbox_client.errors import RepositoryNotFound
from sandbox_client.models import TaskRead
from sandbox_client.protocol.options import TaskOptions

_STDIN = "-"


async def run(invocation: Invocation) -> int:
    args, output = invocation.args, invocation.output
    options = _options(invocation)
    async with invocation.client() as client:
        task = await _create(client, args.repository, options)
        if args.detach:
            output.print_model_or(task, task.id)
            return 0
        output.note(f"Task: {task.id}")
        return await TaskFollower(invocation, client, task).follow(after=0)


async def watch(invocation: Invocation) -> int:
    args = invocation.args
    async with invocation.client() as client:
        task = await find_task(client, args.task)
        follower = TaskFollower(invocation, client, task)
        if args.from_start:
            return await follower.follow(after=0)
        return await follower.follow(tail=args.tail)


def read_text(text: str) -> str:
    """Take a text from the command line, or from stdin if it is `-`."""
    read = sys.stdin.read() if text == _STDIN else text
    if not read.strip():
        raise UsageError("The text is empty.")
    return read


def _options(invocation: Invocation) -> TaskOptions:
    args = invocation.args
    if args.instructions is None and args.issue is None:
        raise UsageError('Say what is to be done: sbx task run OWNER/REPO "…", or --issue N.')
    if args.each_attempt and (args.attempts is not None or args.model is not None):
        raise UsageError("--attempt AGENT[:MODEL] names all attempts; omit --attempts and --model.")
    budget = {"usd": args.budget_usd, "deadline_s": in_seconds(args.deadline)}
    return {
        "instructions": None if args.instructions is None else read_text(args.instructions),
        "issue": args.issue,
        "title": args.title,
        "base": args.base,
        "agent": args.agent,
        "command": args.command,
        "model": args.model,
        "attempts": [_attempt(each) for each in args.each_attempt] or args.attempts,
        "choice": "operator" if args.choose else "automatic",
        "pull_request": args.pull_request,
        "budget": {name: limit for name, limit in budget.items() if limit is not None},
    }


def _attempt(named: str) -> dict[str, str | None]:
    agent, _, model = named.partition(":")
    if agent not in AGENTS:
        raise UsageError(f"{agent!r} is no agent. Use one of: {', '.join(AGENTS)}.")
    return {"agent": agent, "model": model or None}


async def _create(client: AsyncSandboxClient, repository: str, options: TaskOptions) -> TaskRead:
    try:
        return await client.create_task(repository, **options)
    except RepositoryNotFound as error:
        advice = f"Add it with `sbx repo add {repository}`. List repositories with `sbx repo list`."
        raise CliError(f"{error.detail}", advice=advice, code=error.code) from None
