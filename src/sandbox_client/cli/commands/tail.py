"""Follows the output of a command, starting with its last lines."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Literal

from sandbox_client import AsyncCommand, AsyncSandbox
from sandbox_client.cli.commands.exec import format_gap
from sandbox_client.cli.commands.exit_codes import exit_code_of
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import CliError
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.stdio import write_output
from sandbox_client.events import CommandEvent, CommandExit, CommandGap, CommandOutput
from sandbox_client.models import OutputPiece

Stream = Literal["stdout", "stderr"]

_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
_LINES_WITHIN = 256 * 1024
_TYPES = {"CommandStarted": "started", "CommandExit": "exit"}


async def tail(invocation: Invocation) -> int:
    args, output = invocation.args, invocation.output
    async with invocation.sandbox() as sandbox:
        command = await _find_command(sandbox, args.command_id)
        begin: dict[str, int] = {}
        if not args.from_start:
            begin = {each: await _begin(command, each, args.lines, args.bytes) for each in _STREAMS}
        async with aclosing(command.follow()) as events:
            async for event in events:
                await _tell(event, begin, output)
                if isinstance(event, CommandExit):
                    return exit_code_of(event)
    raise CliError("The output ended without an exit code.")


async def _find_command(sandbox: AsyncSandbox, named: str | None) -> AsyncCommand:
    async with aclosing(sandbox.list_commands()) as commands:
        async for command in commands:
            if named is None or command.id.endswith(named):
                return await sandbox.get_command(command.id)
    if named is None:
        raise CliError(
            f"No command has run in sandbox {sandbox.id}.", advice="Run one with `sbx exec`."
        )
    raise CliError(
        f"Command {named!r} not found in sandbox {sandbox.id}.", code="command-not-found"
    )


async def _begin(command: AsyncCommand, stream: Stream, lines: int, size: int | None) -> int:
    """Find the offset to start at."""
    end = command.record.stdout_size if stream == "stdout" else command.record.stderr_size
    if size is not None or lines == 0:
        return max(0, end - (size or 0))
    before = max(0, end - _LINES_WITHIN)
    last = await command.read_output(stream, offset=before, limit=_LINES_WITHIN)
    pieces = [piece for piece in last.items if isinstance(piece, OutputPiece)]
    content = b"".join(piece.content for piece in pieces)
    return last.next_offset - len(content) + start_of_last_lines(content, lines)


def start_of_last_lines(content: bytes, count: int) -> int:
    """Find where the last lines start; an unfinished line counts."""
    start = len(content) - content.endswith(b"\n")
    for _ in range(count):
        start = content.rfind(b"\n", 0, start)
        if start == -1:
            break
    return start + 1


async def _tell(event: CommandEvent, begin: Mapping[str, int], output: Output) -> None:
    match event:
        case CommandOutput() | CommandGap() if _is_before(event, begin):
            return
        case _ if output.as_json:
            name = _TYPES.get(type(event).__name__)
            output.print_model_with(event, type=name) if name else output.print_model(event)
        case CommandOutput():
            skipped = max(0, begin.get(event.type, 0) - event.offset)
            await write_output(event.type, event.content[skipped:])
        case CommandGap():
            output.note(format_gap(event))


def _is_before(event: CommandOutput | CommandGap, begin: Mapping[str, int]) -> bool:
    if isinstance(event, CommandOutput):
        return event.offset + len(event.content) <= begin.get(event.type, 0)
    return event.stream is not None and event.offset < begin.get(event.stream, 0)
