"""The subcommands list and show."""

from collections.abc import AsyncIterator, Iterator

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import format_instant, format_relative
from sandbox_client.cli.tasks.lookup import find_pull, find_task
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import TaskPullRead, TaskRead, TaskRunRead, TaskState

_HEADS = ("ID", "REPOSITORY", "STAGE", "TITLE", "CREATED")
_RUN_HEADS = ("RUN", "KIND", "CAUSE", "OUTCOME", "STARTED", "COST")
_OPEN = (TaskState.QUEUED, TaskState.IN_PROGRESS, TaskState.WAITING_FOR_USER, TaskState.IDLE)


async def list_(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        tasks = _tasks(client, invocation)
        if output.as_json:
            await output.print_models(tasks)
            return
        found = [task async for task in tasks]
    if args.quiet:
        for task in found:
            output.print(task.id)
        return
    output.print_table(_HEADS, [_row(task) for task in found])
    if not found:
        output.note('Start one with: sbx task run OWNER/REPO "…"')


def _tasks(client: AsyncSandboxClient, invocation: Invocation) -> AsyncIterator[TaskRead]:
    args = invocation.args
    states = args.state or (() if args.all else _OPEN)
    return client.list_tasks(repository=args.repository, states=states)


def _row(task: TaskRead) -> tuple[str, ...]:
    created = format_relative(task.created_at)
    return (task.id, task.repository, task.stage, task.title, created)


async def show(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.client() as client:
        task = await find_task(client, invocation.args.task)
        if output.as_json:
            output.print_model(task)
            return
        pull = await find_pull(client, task.id)
        runs = [run async for run in client.list_task_runs(task.id)]
    facts = list(_facts(task, pull))
    widest = max(len(label) for label, _ in facts)
    for label, fact in facts:
        for number, line in enumerate(fact.splitlines()):
            named = "" if number else label
            output.print(f"{output.paint(named.ljust(widest), 'dim')}  {escape_controls(line)}")
    _show_runs(output, runs)


def _show_runs(output: Output, runs: list[TaskRunRead]) -> None:
    if runs:
        output.print("")
        output.print_table(_RUN_HEADS, [_run_row(run) for run in runs])


def _run_row(run: TaskRunRead) -> tuple[str, ...]:
    return (
        str(run.number),
        run.kind,
        run.cause,
        run.outcome or ("running" if run.started_at else "starting"),
        "" if run.started_at is None else format_relative(run.started_at),
        "" if run.cost_usd is None else f"{run.cost_usd:.2f} USD",
    )


def _facts(task: TaskRead, pull: TaskPullRead | None) -> Iterator[tuple[str, str]]:
    yield "id", task.id
    yield "title", task.title
    yield "repository", task.repository
    reason = f": {task.stage_reason}" if task.stage_reason else ""
    yield "stage", f"{task.stage}{reason}"
    yield from _waits(task)
    for label, fact in (
        ("issue", task.source_url),
        ("requested by", task.requester),
        ("agent", task.agent or task.command),
        ("model", task.model),
        ("attempts", _attempts(task)),
        ("base", _at(task.base, task.base_sha)),
        ("branch", _at(task.branch, task.head_sha)),
        ("published", task.published_sha),
        ("pull request", None if pull is None else _pull(pull)),
        ("sandbox", task.sandbox_id),
        ("summary", task.summary),
    ):
        if fact:
            yield label, fact
    yield from _limits(task)


def _attempts(task: TaskRead) -> str:
    if not task.attempts:
        return ""
    chosen = task.chosen_attempt
    return f"{task.attempts}, " + ("none chosen yet" if chosen is None else f"{chosen} was chosen")


def _waits(task: TaskRead) -> Iterator[tuple[str, str]]:
    waits = task.waits_for
    if waits is not None:
        yield "waits for", waits.kind
        if waits.text not in (task.stage_reason or ""):
            yield "", waits.text
        yield "you can", ", ".join(f"sbx task {action}" for action in waits.actions)


def _limits(task: TaskRead) -> Iterator[tuple[str, str]]:
    limits = task.limits
    cost = "" if limits.usd is None else f" of {limits.usd:.2f}"
    yield "spent", f"{limits.spent_usd:.2f}{cost} USD, {limits.used_runs} of {limits.runs} runs"
    for label, instant in (
        ("deadline", limits.deadline_at),
        ("created", task.created_at),
        ("ended", task.ended_at),
    ):
        if instant is not None:
            yield label, format_instant(instant)


def _at(name: str | None, sha: str | None) -> str | None:
    return name if sha is None or name is None else f"{name} at {sha[:12]}"


def _pull(pull: TaskPullRead) -> str:
    state = "draft" if pull.draft and pull.lifecycle == "open" else pull.lifecycle
    checks = "" if pull.checks is None else f", checks: {pull.checks}"
    return f"{pull.url} ({state}{checks})"
