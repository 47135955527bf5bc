from sandbox_client import AsyncSandbox, AsyncTerminal
from sandbox_client.cli.commands.command_line import line_of, read_environment
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import Failure, NotUnderstood
from sandbox_client.console.terminal import LEFT, is_window, show, window_size


async def shell(invocation: Invocation) -> int:
    given = invocation.given
    if given.attach is not None and given.command:
        raise NotUnderstood("A terminal that is there (--attach) runs its command already.")
    async with invocation.sandbox() as sandbox:
        return await open_shell(invocation, sandbox)


async def open_shell(invocation: Invocation, sandbox: AsyncSandbox) -> int:
    """Show a terminal of a sandbox until its program ends, and give its exit code."""
    if not is_window():
        raise Failure("stdin or stdout is no terminal.", advice="`sbx exec -i` needs none.")
    terminal = await _terminal(invocation, sandbox)
    async with terminal:
        code = await show(terminal)
    if code is LEFT:
        invocation.output.note("")
        invocation.output.note(f"It runs on: sbx shell {sandbox.id} --attach {terminal.id}")
        return 0
    return code


async def _terminal(invocation: Invocation, sandbox: AsyncSandbox) -> AsyncTerminal:
    given = invocation.given
    if given.attach is not None:
        return await sandbox.attach_terminal(given.attach)
    cols, rows = window_size()
    return await sandbox.open_terminal(
        cols=cols,
        rows=rows,
        cmd=line_of(given.command) if given.command else None,
        cwd=given.workdir,
        envs=read_environment(given.command_env),
        user=given.user,
    )
