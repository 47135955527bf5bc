"""Runs commands in a sandbox as if they were local: same bytes, signals and exit codes."""

import asyncio
import signal
from contextlib import aclosing, suppress

from sandbox_client import AsyncCommand, AsyncSandbox
from sandbox_client.cli.commands.command_line import line_of, read_environment
from sandbox_client.cli.commands.exit_codes import exit_code_of
from sandbox_client.cli.commands.shell import open_shell
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import CliError, UsageError
from sandbox_client.cli.output.stdio import read_stdin, write_output
from sandbox_client.errors import CommandNotRunning, SandboxError, StdinClosed
from sandbox_client.events import CommandExit, CommandGap, CommandOutput, CommandStarted
from sandbox_client.models import CommandSignal
from sandbox_client.protocol.options import CommandOptions


async def exec_(invocation: Invocation) -> int:
    require_command(invocation)
    async with invocation.sandbox() as sandbox:
        return await execute(invocation, sandbox)


def require_command(invocation: Invocation) -> None:
    """Check that the options go together."""
    args = invocation.args
    if not args.command and not args.tty:
        raise UsageError("No command given. Add it after --.")
    if args.detach and (args.interactive or args.tty):
        raise UsageError("-d cannot be combined with -i or -t.")
    if args.tty and args.timeout is not None:
        raise UsageError("--timeout cannot be combined with -t.")


async def execute(invocation: Invocation, sandbox: AsyncSandbox) -> int:
    """Run the command and return its exit code."""
    args, output = invocation.args, invocation.output
    if args.tty:
        return await open_shell(invocation, sandbox)
    how: CommandOptions = {
        "cwd": args.workdir,
        "envs": read_environment(args.command_env),
        "user": args.user,
        "timeout_s": in_seconds(args.timeout),
    }
    if args.detach:
        left = await sandbox.start(line_of(args.command), **how)
        output.print_model_or(left.record, left.id)
        return 0
    command = await sandbox.begin(line_of(args.command), stdin=args.interactive, **how)
    try:
        ending = await _ForegroundCommand(command, invocation).run()
    except BrokenPipeError:
        await _hang_up(command)
        raise
    except asyncio.CancelledError:
        if invocation.interrupts.received is signal.SIGPIPE:
            await _hang_up(command)
        elif args.keep:
            output.note("")
            output.note(f"Still running. Follow it with: sbx tail {sandbox.id} {command.id}")
        raise
    if output.as_json:
        output.print_model(await command.refresh())
    return exit_code_of(ending)


async def _hang_up(command: AsyncCommand) -> None:
    """Send SIGHUP to a command whose output is no longer read, as a closed terminal does."""
    hanging_up = asyncio.create_task(_signal_once_started(command))
    with suppress(SandboxError):
        # A failed write and the closed pipe are noticed separately: the one must not cancel what the other began.
        with suppress(asyncio.CancelledError):
            await asyncio.shield(hanging_up)
        await hanging_up


async def _signal_once_started(command: AsyncCommand) -> None:
    async with aclosing(command.follow()) as events:
        await anext(events)
    await command.signal(CommandSignal.SIGHUP)


class _ForegroundCommand:
    """A foreground command: forwards stdin and Ctrl-C; a second Ctrl-C detaches."""

    def __init__(self, command: AsyncCommand, invocation: Invocation) -> None:
        self._command = command
        self._output = invocation.output
        self._interrupts = invocation.interrupts
        self._started = asyncio.Event()
        self._interrupted = asyncio.Event()

    async def run(self) -> CommandExit:
        """Forward input and output until the command ends."""
        try:
            with self._interrupts.handled_by(self._interrupt):
                async with asyncio.TaskGroup() as group:
                    interrupting = group.create_task(self._pass_interrupt_on())
                    typing = group.create_task(self._pass_stdin_on())
                    ending = await self._show()
                    interrupting.cancel()
                    typing.cancel()
        except* (CliError, OSError, SandboxError) as errors:
            raise errors.exceptions[0] from None
        return ending

    def _interrupt(self) -> None:
        if self._interrupted.is_set():
            self._interrupts.cancel()
        self._interrupted.set()

    async def _show(self) -> CommandExit:
        async with aclosing(self._command.follow()) as events:
            async for event in events:
                match event:
                    case CommandStarted():
                        self._started.set()
                    case CommandExit():
                        return event
                    case CommandOutput() if not self._output.as_json:
                        await write_output(event.type, event.content)
                    case CommandGap():
                        self._output.note(format_gap(event))
        raise CliError("The output ended without an exit code.")

    async def _pass_stdin_on(self) -> None:
        if not self._command.record.stdin:
            return
        await self._started.wait()
        with suppress(CommandNotRunning, StdinClosed):  # the command reads no more input
            async for part in read_stdin():
                await self._command.send(part)
            await self._command.send(end=True)

    async def _pass_interrupt_on(self) -> None:
        await self._interrupted.wait()
        await self._started.wait()
        with suppress(CommandNotRunning):
            await self._command.signal(CommandSignal.SIGINT)


def format_gap(gap: CommandGap) -> str:
    of = "" if gap.stream is None else f" of {gap.stream}"
    why = f": {gap.reason}" if gap.reason else ""
    if gap.size is None:
        return f"[output{of} may be missing here{why}]"
    return f"[{gap.size} bytes{of} were discarded{why}]"
