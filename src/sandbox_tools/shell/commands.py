import signal
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from fastmcp import Context
from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.shell.command_output import CommandOutput, OutputFiles
from sandbox_tools.shell.directories import directory
from sandbox_tools.shell.environment import inherited_environment, sandbox_environment
from sandbox_tools.shell.process import CommandResult, run
from sandbox_tools.shell.shells import Shells
from sandbox_tools.toolkit.context import ToolsetContext

_MAX_BYTES = 128 * 1024 - 1  # what Linux lets one argument have, with its end
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
            Field(min_length=1, description="For `bash -lc`: any script, of several lines too."),
        ],
        timeout_s: Annotated[
            float, Field(gt=0, le=86_400, description="After so many seconds it is killed.")
        ] = 120,
        cwd: Annotated[
            str | None, Field(description="Directory to run it in. Default: the working directory.")
        ] = None,
        *,
        background: Annotated[
            bool,
            Field(
                description="Let it run without waiting, with a terminal: for servers and watchers."
            ),
        ] = False,
    ) -> str:
        """Run a command to its end, and give its output (stdout and stderr as they came) and exit code.

        Each call has a bash of its own: `cd` and variables do not last (shell_open gives a shell in which they do). There is no
        terminal, and stdin is empty. At the timeout, and when the call is cancelled, all its processes but daemons are killed. Long
        output is cut in the middle; the answer names the file that has the whole. With `background` the answer is a name by
        which shell_view shows its output and exit code, shell_write gives it input, and shell_kill ends it.
        """
        where = directory(self._context.workspace, cwd)
        if background:
            return await self._start(check_command(command), where)
        output = CommandOutput(self._files.open)

        async def report(seconds: float, line: str) -> None:
            await context.report_progress(min(seconds, timeout_s), timeout_s, line or None)

        try:
            ended = await run(
                check_command(command),
                cwd=where,
                environment=inherited_environment()
                | {"TERM": "dumb"}
                | sandbox_environment(self._context.settings),
                timeout=timedelta(seconds=timeout_s),
                output=output,
                report=report,
            )
        finally:
            output.close()
        return f"{end_with_newline(output.text())}[{_describe_result(ended, output, timeout_s)}]"

    async def _start(self, command: str, cwd: Path) -> str:
        environment = sandbox_environment(self._context.settings)
        shell = await self._shells.start(command, cwd=cwd, environment=environment)
        return (
            f"{shell.name} runs in the background. See its output with shell_view, end it with shell_kill. What its"
            f" terminal gets is in {shell.directory.recorded(1)}. A person joins it with:"
            f" {self._shells.tmux.attach_command(shell.name)}"
        )


def check_command(command: str) -> str:
    """Refuse what no process can be given."""
    if "\0" in command:
        raise ToolError("The command has a NUL character, which no command can have.")
    if len(command.encode(errors="surrogateescape")) > _MAX_BYTES:
        raise ToolError(
            "The command is longer than 128 KiB. Write it to a file with write_file, and run that."
        )
    return command


def end_with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _describe_result(ended: CommandResult, output: CommandOutput, timeout_s: float) -> str:
    if ended.timed_out or ended.exit_code is None:
        how = "killed" if not ended.survived else "some of it cannot be killed and still runs"
        return (
            f"{how}: it had not ended after {timeout_s:g} s. Give it a larger timeout_s, or run it"
            " with background=true"
        )
    text = describe_exit(ended.exit_code)
    if not output.size:
        text = f"no output; {text}"
    if ended.left_running:
        text += f"; processes that it started still run, and write to {output.file or 'nowhere'}"
    return text


def describe_exit(exit_code: int) -> str:
    if exit_code < 0:
        text = f"killed by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    else:
        text = f"exit code {exit_code}"
    if exit_code in (_KILLED, -signal.SIGKILL):
        text += ", perhaps since the sandbox had no memory left"
    return text
