import asyncio
import re
import time
from datetime import timedelta
from typing import Annotated

from fastmcp import Context
from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.shell.calling_agent import find_marks
from sandbox_tools.shell.commands import check_command, describe_exit, end_with_newline
from sandbox_tools.shell.directories import working_directory
from sandbox_tools.shell.environment import sandbox_environment
from sandbox_tools.shell.shell import Shell
from sandbox_tools.shell.shell_monitor import ShellMonitor
from sandbox_tools.shell.shell_runner import ShellResult, ShellRunner
from sandbox_tools.shell.shells import NAME, Shells
from sandbox_tools.shell.terminal_text import render_terminal_text
from sandbox_tools.shell.tmux import MAX_RECORDED_BYTES
from sandbox_tools.toolkit.context import ToolsetContext
from sandbox_tools.toolkit.truncation import truncate_middle

_HEAD, _TAIL = 10_000, 20_000
_MAX_ESCAPE_RATIO = 4  # terminal output may be this much longer than its text
_KEY = re.compile(
    r"(?:[CMS]-)*(?:[!-~]|Enter|Escape|Tab|BTab|Space|BSpace|Up|Down|Left|Right|Home|End"
    r"|PageUp|PageDown|PPage|NPage|IC|DC|F(?:[1-9]|1[0-2]))"
)
_REDRAW_INTERVAL_S = 0.2

ShellName = Annotated[str, Field(description="Name of the shell, from shell_open or shell_list.")]


class ShellState(BaseModel):
    name: str
    state: str = Field(description="idle (at its prompt), running or ended")
    command: str | None = Field(description="The running or last command")
    exit_code: int | None = Field(description="Exit code of the last command")
    cwd: str
    attach: str = Field(description="Command to attach to it from a terminal in the sandbox")


class ShellStates(BaseModel):
    shells: list[ShellState]


class ShellTools:
    def __init__(self, context: ToolsetContext, shells: Shells) -> None:
        self._context = context
        self._shells = shells
        self._runner = ShellRunner(shells)

    async def shell_open(
        self,
        name: Annotated[
            str | None,
            Field(
                pattern=f"^{NAME}$", description="Name of the shell. Default: shell-1, shell-2, …"
            ),
        ] = None,
        cwd: Annotated[
            str | None, Field(description="Directory to start in. Default: the working directory.")
        ] = None,
    ) -> str:
        """Open a persistent bash with a terminal: `cd`, variables and functions persist between commands.

        Run commands in it with shell_run. It survives this connection and ends with shell_kill, or when your run is interrupted. Names of ended shells can be reused.
        """
        shell = await self._shells.open(
            name,
            cwd=working_directory(self._context.workspace, cwd),
            environment=self._environment(),
            marks=await find_marks(),
        )
        attach = self._shells.tmux.attach_command(shell.name)
        return (
            f"Shell {shell.name} is open in {shell.pane.cwd}. To attach from a terminal: {attach}"
        )

    async def shell_run(
        self,
        context: Context,
        shell: ShellName,
        command: Annotated[
            str, Field(min_length=1, description="Command for bash; may have several lines.")
        ],
        timeout_s: Annotated[
            float,
            Field(
                gt=0,
                le=86_400,
                description="Seconds to wait; afterwards the command keeps running.",
            ),
        ] = 120,
    ) -> str:
        """Run a command in an open shell and wait for it. Returns its output and exit code.

        On timeout the command keeps running and the output so far is returned: wait with shell_view wait_s, send input with
        shell_write, or interrupt with shell_write keys=["C-c"]. Cancelling the call interrupts the command.
        """

        async def report(seconds: float, line: str) -> None:
            await context.report_progress(min(seconds, timeout_s), timeout_s, line or None)

        ran = await self._runner.run(
            shell, check_command(command), timeout=timedelta(seconds=timeout_s), report=report
        )
        if not ran.shell_ended and ran.exit_code is None:
            return await self._format_running(shell, ran, timeout_s)
        text = await self._output(shell, ran)
        return f"{end_with_newline(text)}[{_describe_result(shell, ran, text)}]"

    async def shell_view(
        self,
        context: Context,
        shell: ShellName,
        lines_above: Annotated[
            int,
            Field(ge=0, le=2000, description="Lines of scrollback to include above the screen."),
        ] = 0,
        wait_s: Annotated[
            float,
            Field(
                ge=0,
                le=3600,
                description="Seconds to wait for the running command to end.",
            ),
        ] = 0,
    ) -> str:
        """Show the screen of a shell or background command, and whether it is running, idle or ended."""
        found = await self._shells.find(shell)
        if wait_s:
            await _wait_until_ended(found, wait_s, context)
            found = await self._shells.find(shell)
        return await self._view(found, lines_above)

    async def shell_write(
        self,
        shell: ShellName,
        text: Annotated[
            str, Field(max_length=65_536, description="Text to type; a newline is Enter.")
        ] = "",
        *,
        enter: Annotated[bool, Field(description="Press Enter after the text.")] = True,
        keys: Annotated[
            list[str] | None,
            Field(
                max_length=100,
                description="Keys to press after the text, e.g. C-c, C-d, Escape, Tab, Up, PageDown, F1, M-x, y.",
            ),
        ] = None,
    ) -> str:
        """Send text or keys to the program running in a shell. Returns the screen afterwards."""
        pressed = [*(["Enter"] if text and enter else []), *_check_keys(keys or [])]
        if not text and not pressed:
            raise ToolError("Pass text, keys or both.")
        found = await self._shells.find(shell)
        if found.pane.exit_code is not None:
            raise ToolError(f"{shell} has ended. Open a shell with shell_open.")
        await self._shells.write(found, text, pressed)
        await self._wait_until_redrawn(found)
        return await self._view(await self._shells.find(shell), 0)

    async def shell_kill(self, shell: ShellName) -> str:
        """End a shell or background command and all its processes."""
        found = await self._shells.find(shell)
        is_gone = await self._shells.kill(found)
        return f"{shell} has ended{'' if is_gone else ', but some of its processes could not be killed'}."

    async def shell_list(self) -> ShellStates:
        """List shells and background commands with their state, command and exit code."""
        return ShellStates(shells=[self._state(shell) for shell in await self._shells.all()])

    def _environment(self) -> dict[str, str]:
        # A pager would wait for a key.
        pagers = dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"), "cat")
        return pagers | sandbox_environment(self._context.settings)

    async def _format_running(self, name: str, ran: ShellResult, timeout_s: float) -> str:
        shell = await self._shells.find(name)
        text = (
            truncate_middle(await self._shells.tmux.screen(shell.pane))
            if shell.pane.full_screen
            else await self._output(name, ran)
        )
        return f"{end_with_newline(text)}[still running after {timeout_s:g} s; use shell_view or shell_write]"

    async def _output(self, name: str, ran: ShellResult) -> str:
        """Return the command's output; if it is long, its beginning and end."""
        head, tail, between = await asyncio.to_thread(
            ran.recording.ends, head=_HEAD * _MAX_ESCAPE_RATIO, tail=_TAIL * _MAX_ESCAPE_RATIO
        )
        first, last = render_terminal_text(head), render_terminal_text(tail)
        if ran.recording.size >= MAX_RECORDED_BYTES:
            shell = await self._shells.find(name)
            last = await self._shells.tmux.screen(shell.pane, above=200)
        elif not between and len(first) <= _HEAD + _TAIL:
            return first
        elif not between:
            first, last = first[:-_TAIL], first[-_TAIL:]
        return (
            f"{first[:_HEAD]}\n[… truncated; {'beginning of the output' if ran.recording.size >= MAX_RECORDED_BYTES else 'full output'}"
            f" as sent to the terminal: {ran.recording.path} …]\n{last[-_TAIL:]}"
        )

    async def _view(self, shell: Shell, lines_above: int) -> str:
        screen = await self._shells.tmux.screen(shell.pane, above=lines_above)
        return f"{end_with_newline(truncate_middle(screen))}[{self._describe_state(shell)}]"

    def _describe_state(self, shell: Shell) -> str:
        state = self._state(shell)
        if shell.pane.exit_code is not None:
            return f"ended: {describe_exit(shell.pane.exit_code)}"
        if state.state == "running":
            running = shell.directory.running()
            since = (
                f" for {time.time() - shell.directory.began_at(running):.0f} s" if running else ""
            )
            return f"running{since}: {state.command}"
        if state.exit_code is None:
            return "idle"
        return f"idle; the last command ended: {describe_exit(state.exit_code)}"

    def _state(self, shell: Shell) -> ShellState:
        last = shell.directory.last()
        running = shell.is_running()
        runs_our_command = (
            shell.background is not None or shell.directory.running() is not None or not running
        )
        command = shell.directory.command(last)[:500] if runs_our_command else shell.pane.program
        ended = shell.pane.exit_code
        return ShellState(
            name=shell.name,
            state="running" if running else "idle" if ended is None else "ended",
            command=command or None,
            exit_code=None
            if running
            else shell.directory.exit_code(last)
            if ended is None and last
            else ended,
            cwd=shell.pane.cwd,
            attach=self._shells.tmux.attach_command(shell.name),
        )

    async def _wait_until_redrawn(self, shell: Shell) -> None:
        """Give the program a moment to react to its input."""
        before = None
        for _ in range(10):
            await asyncio.sleep(_REDRAW_INTERVAL_S)
            now = await self._shells.tmux.screen(shell.pane)
            if now == before:
                return
            before = now


async def _wait_until_ended(shell: Shell, within_s: float, context: Context) -> None:
    end = asyncio.get_running_loop().time() + within_s
    with ShellMonitor.open(shell.directory.wake, shell.pane.pid) as monitor:
        while shell.is_running() and not monitor.ended:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await monitor.wait_for_change(min(1.0, left))
            await context.report_progress(within_s - left, within_s)


def _check_keys(keys: list[str]) -> list[str]:
    for key in keys:
        if not _KEY.fullmatch(key):
            raise ToolError(
                f"Unknown key {key[:50]!r}. Keys: a character, Enter, Escape, Tab, Space, BSpace, Up, Down, Left, Right,"
                " Home, End, PageUp, PageDown, F1 to F12, with prefix C- for Ctrl or M- for Alt. Use the parameter text"
                " for text."
            )
    return keys


def _describe_result(name: str, ran: ShellResult, text: str) -> str:
    prefix = "no output; " if not text else ""
    if not ran.shell_ended:
        assert ran.exit_code is not None
        return prefix + describe_exit(ran.exit_code)
    how = f" ({describe_exit(ran.exit_code)})" if ran.exit_code is not None else ""
    return f"{prefix}shell {name} has ended{how}"
