"""pause, resume and rm. An error with one sandbox does not stop the others."""

from collections.abc import Awaitable, Callable

from sandbox_client import AsyncSandbox
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import FAILED, CliError, ErrorReport
from sandbox_client.cli.sandbox_lookup import find_sandbox
from sandbox_client.cli.sandboxes.queue_progress import QueueProgress
from sandbox_client.errors import SandboxError


async def pause(invocation: Invocation) -> int:
    return await _apply_to_each(invocation, lambda sandbox: sandbox.pause())


async def resume(invocation: Invocation) -> int:
    async def wake(sandbox: AsyncSandbox) -> None:
        with QueueProgress(invocation.output) as line:
            await sandbox.resume(wait_s=None, on_progress=line.tell)

    return await _apply_to_each(invocation, wake)


async def rm(invocation: Invocation) -> int:
    return await _apply_to_each(invocation, lambda sandbox: sandbox.delete())


async def _apply_to_each(
    invocation: Invocation, turn: Callable[[AsyncSandbox], Awaitable[object]]
) -> int:
    output = invocation.output
    code = 0
    async with invocation.client() as client:
        for named in invocation.args.sandboxes:
            try:
                sandbox = await find_sandbox(client, named)
                await turn(sandbox)
            except (CliError, SandboxError) as error:
                output.print_error(ErrorReport.of(error).about(named))
                code = FAILED
            else:
                output.print(sandbox.id)
    return code
