"""What is wanted of several sandboxes at once: one that cannot have it keeps it from no other."""

from collections.abc import Awaitable, Callable

from sandbox_client import AsyncSandbox
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import FAILED, Failure, Told
from sandbox_client.cli.sandbox_lookup import find_sandbox
from sandbox_client.cli.sandboxes.queue_progress import WaitingLine
from sandbox_client.errors import SandboxError


async def pause(invocation: Invocation) -> int:
    return await _turn(invocation, lambda sandbox: sandbox.pause())


async def resume(invocation: Invocation) -> int:
    async def wake(sandbox: AsyncSandbox) -> None:
        with WaitingLine(invocation.output) as line:
            await sandbox.resume(wait_s=None, on_progress=line.tell)

    return await _turn(invocation, wake)


async def rm(invocation: Invocation) -> int:
    return await _turn(invocation, lambda sandbox: sandbox.delete())


async def _turn(invocation: Invocation, turn: Callable[[AsyncSandbox], Awaitable[object]]) -> int:
    output = invocation.output
    code = 0
    async with invocation.client() as client:
        for named in invocation.given.sandboxes:
            try:
                sandbox = await find_sandbox(client, named)
                await turn(sandbox)
            except (Failure, SandboxError) as error:
                output.fail(Told.of(error).about(named))
                code = FAILED
            else:
                output.say(sandbox.id)
    return code
