"""The subcommand attempts."""

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.tasks.lookup import find_task
from sandbox_client.models import TaskAttemptRead

_HEADS = ("ATTEMPT", "AGENT", "STATE", "CHECKS", "CHANGES", "COST", "REASON")


async def list_attempts(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.client() as client:
        task = await find_task(client, invocation.args.task)
        attempts = client.list_task_attempts(task.id)
        if output.as_json:
            await output.print_models(attempts)
            return
        found = [attempt async for attempt in attempts]
    if not found:
        output.note("The task has no attempts: one agent works on it.")
        return
    output.print_table(_HEADS, [_row(attempt) for attempt in found])
    output.note(f"See the work of one: sbx task diff {task.id} --to attempt:N")


def _row(attempt: TaskAttemptRead) -> tuple[str, ...]:
    agent = attempt.agent or attempt.command or ""
    return (
        str(attempt.number),
        f"{agent}:{attempt.model}" if attempt.model else agent,
        attempt.state,
        attempt.checks or "",
        f"{attempt.files} files +{attempt.added} -{attempt.removed}" if attempt.ended_at else "",
        f"{attempt.cost_usd:.2f} USD" if attempt.cost_usd else "",
        attempt.reason or "",
    )
