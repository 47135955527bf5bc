from sandbox_client import AsyncSandbox, AsyncTerminal
from sandbox_client.cli.commands.command_line import line_of, read_environment
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import CliError, UsageError
from sandbox_client.console.terminal import DETACHED, is_terminal, show, terminal_size


async def shell(invocation: Invocation) -> int:
    args = invocation.args
    if args.attach is not None and args.command:
        raise UsageError("--attach cannot be combined with a command.")
    async with invocation.sandbox() as sandbox:
        return await open_shell(invocation, sandbox)


async def open_shell(invocation: Invocation, sandbox: AsyncSandbox) -> int:
    """Show a terminal until its program ends and return the exit code."""
    if not is_terminal():
        raise CliError(
            "stdin and stdout must be a terminal.", advice="Without a terminal, use `sbx exec -i`."
        )
    terminal = await _terminal(invocation, sandbox)
    async with terminal:
        code = await show(terminal)
    if code is DETACHED:
        invocation.output.note("")
        invocation.output.note(
            f"Still running. Attach again with: sbx shell {sandbox.id} --attach {terminal.id}"
        )
        return 0
    return code


async def _terminal(invocation: Invocation, sandbox: AsyncSandbox) -> AsyncTerminal:
    args = invocation.args
    if args.attach is not None:
        return await sandbox.attach_terminal(args.attach)
    cols, rows = terminal_size()
    return await sandbox.open_terminal(
        cols=cols,
        rows=rows,
        cmd=line_of(args.command) if args.command else None,
        cwd=args.workdir,
        envs=read_environment(args.command_env),
        user=args.user,
    )
