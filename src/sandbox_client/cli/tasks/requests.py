"""The subcommands message, cancel, choose, approve and retry."""

from collections.abc import Awaitable, Callable

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import FAILED, CliError, ErrorReport
from sandbox_client.cli.tasks.follower import TaskFollower
from sandbox_client.cli.tasks.lookup import find_task
from sandbox_client.cli.tasks.run import read_text
from sandbox_client.errors import SandboxError
from sandbox_client.models import TaskRead


async def message(invocation: Invocation) -> int:
    text = read_text(invocation.args.text)

    async def send(client: AsyncSandboxClient, task: TaskRead) -> TaskRead:
        await client.send_task_message(task.id, text, interrupt=invocation.args.interrupt)
        return await client.get_task(task.id)

    return await _ask(invocation, send)


async def approve(invocation: Invocation) -> int:
    head = invocation.args.head
    return await _ask(invocation, lambda client, task: client.approve_task(task.id, head=head))


async def choose(invocation: Invocation) -> int:
    number = invocation.args.number
    return await _ask(invocation, lambda client, task: client.choose_task_attempt(task.id, number))


async def retry(invocation: Invocation) -> int:
    return await _ask(invocation, lambda client, task: client.retry_task(task.id))


async def cancel(invocation: Invocation) -> int:
    """Cancel each; an error with one does not stop the others."""
    output, code = invocation.output, 0
    async with invocation.client() as client:
        for named in invocation.args.tasks:
            try:
                task = await find_task(client, named)
                cancelled = await client.cancel_task(task.id)
            except (CliError, SandboxError) as error:
                output.print_error(ErrorReport.of(error).about(named))
                code = FAILED
            else:
                output.print_model_or(cancelled, cancelled.id)
    return code


async def _ask(
    invocation: Invocation,
    request: Callable[[AsyncSandboxClient, TaskRead], Awaitable[TaskRead]],
) -> int:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        before = await find_task(client, args.task)
        task = await request(client, before)
        if args.follow:
            follower = TaskFollower(invocation, client, task, before=before)
            return await follower.follow(tail=args.tail)
    output.print_model_or(task, task.id)
    output.note(f"Follow it: sbx task watch {task.id}")
    return 0
