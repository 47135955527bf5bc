import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from fastmcp import Context
from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.shell.calling_agent import find_marks
from sandbox_tools.shell.command_output import CommandOutput, OutputFiles
from sandbox_tools.shell.directories import working_directory
from sandbox_tools.shell.environment import inherited_environment, sandbox_environment
from sandbox_tools.shell.process import CommandResult, run
from sandbox_tools.shell.shells import Shells
from sandbox_tools.toolkit.context import ToolsetContext

_MAX_BYTES = 128 * 1024 - 1  # Linux's limit for one argument, without the terminating NUL
_KILLED = 128 + signal.SIGKILL


class Commands:
    def __init__(self, context: ToolsetContext, files: OutputFiles, shells: Shells) -> None:
        self._context = context
        self._files = files
        self._shells = shells

    async def run_command(
        self,
        context: Context,
        command: Annotated[
            str,
            Field(min_length=1, description="Script for `bash -lc`; may have several lines."),
        ],
        timeout_s: Annotated[
            float, Field(gt=0, le=86_400, description="Kill the command after this many seconds.")
        ] = 120,
        cwd: Annotated[
            str | None, Field(description="Directory to run in. Default: the working directory.")
        ] = None,
        *,
        background: Annotated[
            bool,
            Field(description="Start in a terminal and return at once: for servers and watchers."),
        ] = False,
    ) -> str:
        """Run a command and wait for it. Returns stdout and stderr, interleaved, and the exit code.

        Every call starts a new bash: `cd` and variables do not persist; use shell_open for that. No terminal; stdin is empty. On
        timeout or cancellation all processes of the command are killed, except daemons. Long output is truncated in the middle; the
        result names the file with the full output. With background=true it returns a name at once: use shell_view for output and
        exit code, shell_write for input, shell_kill to end it; interrupting your run ends it too.
        """
        where, marks = working_directory(self._context.workspace, cwd), await find_marks()
        if background:
            return await self._start(check_command(command), where, marks)
        output = CommandOutput(self._files.open)

        async def report(seconds: float, line: str) -> None:
            await context.report_progress(min(seconds, timeout_s), timeout_s, line or None)

        try:
            ended = await run(
                check_command(command),
                cwd=where,
                environment=inherited_environment()
                | {"TERM": "dumb"}
                | sandbox_environment(self._context.settings)
                | marks,
                timeout=timedelta(seconds=timeout_s),
                output=output,
                report=report,
            )
        finally:
            output.close()
        return f"{end_with_newline(output.text())}[{_describe_result(ended, output, timeout_s)}]"

    async def _start(self, command: str, cwd: Path, marks: Mapping[str, str]) -> str:
        environment = sandbox_environment(self._context.settings)
        shell = await self._shells.start(command, cwd=cwd, environment=environment, marks=marks)
        return (
            f"{shell.name} is running in the background. View it with shell_view, end it with shell_kill. Terminal"
            f" output: {shell.directory.output_path(1)}. To attach from a terminal:"
            f" {self._shells.tmux.attach_command(shell.name)}"
        )


def check_command(command: str) -> str:
    """Reject commands that Linux cannot execute."""
    if "\0" in command:
        raise ToolError("The command contains a NUL character. Remove it.")
    if len(command.encode(errors="surrogateescape")) > _MAX_BYTES:
        raise ToolError(
            "The command is longer than 128 KiB. Write it to a file with write_file and run the file."
        )
    return command


def end_with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _describe_result(ended: CommandResult, output: CommandOutput, timeout_s: float) -> str:
    if ended.timed_out or ended.exit_code is None:
        how = (
            "timed out and killed"
            if not ended.survived
            else "timed out; some processes could not be killed"
        )
        return f"{how} after {timeout_s:g} s. Raise timeout_s, or run it with background=true"
    text = describe_exit(ended.exit_code)
    if not output.size:
        text = f"no output; {text}"
    if ended.left_running:
        text += f"; processes that it started are still running; their output: {output.file or 'discarded'}"
    return text


def describe_exit(exit_code: int) -> str:
    if exit_code < 0:
        text = f"killed by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    else:
        text = f"exit code {exit_code}"
    if exit_code in (_KILLED, -signal.SIGKILL):
        text += "; the sandbox may be out of memory"
    return text
