"""Runs code in the interpreter of a sandbox, and shows its output and results as they arrive."""

import asyncio
import json
import signal
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from sandbox_client import AsyncCodeExecution
from sandbox_client.cli.commands.command_line import read_environment
from sandbox_client.cli.commands.exec import format_gap
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import FAILED, TIMED_OUT, CliError, UsageError
from sandbox_client.cli.output.stdio import read_stdin, write_output
from sandbox_client.errors import SandboxError
from sandbox_client.events import (
    CodeEnd,
    CodeErrorEvent,
    CodeEvent,
    CodeResultEvent,
    CommandGap,
    CommandOutput,
)
from sandbox_client.models import CodeExecutionState
from sandbox_client.protocol.options import CodeOptions

_LANGUAGES = {
    **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".mts"), "typescript"),
    **dict.fromkeys((".sh", ".bash"), "bash"),
    ".py": "python",
    ".r": "r",
    ".java": "java",
}
# The first of these that a result has is a file with --save.
_FIGURES = ("png", "jpeg", "svg", "pdf")


async def run_code(invocation: Invocation) -> int:
    args = invocation.args
    if args.code is not None and args.file is not None:
        raise UsageError("FILE cannot be combined with -c.")
    code = await _read_code(args.file, args.code)
    options: CodeOptions = {
        "language": args.language or _language_of(args.file, args.context),
        "context_id": args.context,
        "env_vars": read_environment(args.command_env),
        "timeout_s": in_seconds(args.timeout),
    }
    async with invocation.sandbox() as sandbox:
        execution = await sandbox.start_code(code, **options)
        return await _CodeRun(execution, invocation).show()


async def _read_code(file: Path | None, code: str | None) -> str:
    if code is not None:
        return code
    try:
        if file is None or str(file) == "-":
            content = b"".join([part async for part in read_stdin()])
        else:
            content = await asyncio.to_thread(file.read_bytes)
        return content.decode()
    except OSError as error:
        raise CliError(f"Cannot read {file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CliError("The code is not UTF-8 text.") from None


def _language_of(file: Path | None, context_id: str | None) -> str | None:
    if file is None or context_id is not None:
        return None
    return _LANGUAGES.get(file.suffix.lower())


class _CodeRun:
    """An execution that is followed: Ctrl-C interrupts the code, a second one detaches."""

    def __init__(self, execution: AsyncCodeExecution, invocation: Invocation) -> None:
        self._execution = execution
        self._invocation = invocation
        self._output = invocation.output
        self._directory: Path | None = invocation.args.save
        self._interrupting: asyncio.Task[None] | None = None

    async def show(self) -> int:
        """Show events until the code ends; return the exit code."""
        try:
            with self._invocation.interrupts.handled_by(self._interrupt):
                end = await self._show_events()
        except (BrokenPipeError, asyncio.CancelledError):
            closed = self._invocation.interrupts.received is signal.SIGPIPE
            if closed or self._interrupting is None:
                with suppress(SandboxError):
                    await asyncio.shield(self._execution.interrupt())
            raise
        if self._output.as_json:
            self._output.print_model(await self._execution.refresh())
        return _exit_code_of(end)

    def _interrupt(self) -> None:
        if self._interrupting is not None:
            self._invocation.interrupts.cancel()
        self._interrupting = asyncio.create_task(self._execution.interrupt())

    async def _show_events(self) -> CodeEnd:
        async with aclosing(self._execution.follow()) as events:
            async for event in events:
                if isinstance(event, CodeEnd):
                    return event
                await self._show_event(event)
        raise CliError("The output ended without a result.")

    async def _show_event(self, event: CodeEvent) -> None:
        if isinstance(event, CodeResultEvent) and await self._has_saved(event):
            return
        if self._output.as_json:
            return
        match event:
            case CommandOutput():
                await write_output(event.type, event.content)
            case CodeResultEvent():
                await write_output("stdout", f"{_text_of(event)}\n".encode())
            case CodeErrorEvent():
                text = event.traceback or f"{event.name}: {event.value}"
                await write_output("stderr", f"{text.rstrip()}\n".encode())
            case CommandGap():
                self._output.note(format_gap(event))

    async def _has_saved(self, result: CodeResultEvent) -> bool:
        """Write the figure of a result to a file, if it has one and a directory was given."""
        name = next((each for each in _FIGURES if each in result.sizes), None)
        if self._directory is None or name is None:
            return False
        file = self._directory / f"{self._execution.id[-6:]}-{result.number}.{name}"
        content = await self._execution.read_result(result.number, name)
        try:
            await asyncio.to_thread(_write, file, content)
        except OSError as error:
            raise CliError(f"Cannot write {file}: {error.strerror}.") from None
        self._output.note(f"Saved {file}")
        return True


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _text_of(result: CodeResultEvent) -> str:
    if result.text is not None:
        return result.text
    shown: Any = next(
        (result.data[name] for name in ("markdown", "latex", "json") if name in result.data), None
    )
    if shown is None:
        return f"[{', '.join(result.sizes) or 'nothing that was kept'}]"
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _exit_code_of(end: CodeEnd) -> int:
    match end.state:
        case CodeExecutionState.SUCCEEDED:
            return 0
        case CodeExecutionState.ERROR:
            return FAILED
        case CodeExecutionState.TIMED_OUT:
            return TIMED_OUT
        case CodeExecutionState.KILLED if end.reason == "Interrupted by request.":
            return 130
        case CodeExecutionState.FAILED:
            raise CliError(f"The code did not run: {end.reason or 'reason not recorded'}")
        case _:
            raise CliError(f"The execution was {end.state}: {end.reason or 'reason not recorded'}")
