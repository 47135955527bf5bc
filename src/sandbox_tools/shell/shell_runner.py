import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import anyio
from fastmcp.exceptions import ToolError

from sandbox_tools.shell.shell import Shell
from sandbox_tools.shell.shell_directory import Recording
from sandbox_tools.shell.shell_monitor import ShellMonitor
from sandbox_tools.shell.shells import Shells
from sandbox_tools.shell.terminal_text import render_terminal_text
from sandbox_tools.shell.tmux import MAX_RECORDED_BYTES, recording

_TAKE_KEYS = [f"{byte:02x}" for byte in b"\x1b[7770~\r"]  # the keys bound by hooks.bash, and Enter
_ACCEPT_TIMEOUT_S = 15.0
_RECORDING_TIMEOUT_S = 5.0
_STABLE_S = 0.1
_POLL_INTERVAL_S = 1.0

ReportProgress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class ShellResult:
    """Result of a command in a shell; without exit code and `shell_ended` it is still running."""

    recording: Recording
    exit_code: int | None
    shell_ended: bool  # the shell itself has ended


class ShellRunner:
    """Runs commands in shells, one at a time per shell."""

    def __init__(self, shells: Shells) -> None:
        self._shells = shells
        self._tmux = shells.tmux
        self._busy: set[str] = set()

    async def run(
        self, name: str, command: str, *, timeout: timedelta, report: ReportProgress
    ) -> ShellResult:
        """Run a command and wait; on timeout it keeps running."""
        if name in self._busy:
            raise ToolError(
                f"Another shell_run is in progress in {name}. Wait for it or open another shell."
            )
        self._busy.add(name)
        try:
            shell = await self._shells.find(name)
            _check_idle(shell)
            with ShellMonitor.open(shell.directory.wake, shell.pane.pid) as monitor:
                try:
                    number, recorded = await self._send(shell, command, monitor)
                    return await self._wait(shell, number, recorded, monitor, timeout, report)
                except asyncio.CancelledError:
                    with anyio.CancelScope(shield=True):
                        await self._interrupt(shell)
                    raise
        finally:
            self._busy.discard(name)

    async def _interrupt(self, shell: Shell) -> None:
        """Interrupt the command, or withdraw it if the shell has not accepted it yet."""
        shell.directory.withdraw()
        await self._tmux.run(("send-keys", "-t", shell.pane.id, "C-c"))

    async def _send(
        self, shell: Shell, command: str, monitor: ShellMonitor
    ) -> tuple[int, Recording]:
        directory, pane = shell.directory, shell.pane.id
        number = directory.last() + 1
        recorded = directory.request(number, command)
        await self._tmux.run(
            (
                "copy-mode",
                "-q",
                "-t",
                pane,
            ),  # a person may have entered copy mode, which would receive the keys
            recording(pane, recorded.path),
            ("send-keys", "-t", pane, "-H", *_TAKE_KEYS),
        )
        end = asyncio.get_running_loop().time() + _ACCEPT_TIMEOUT_S
        while not directory.has_begun(number) and not monitor.ended:
            if asyncio.get_running_loop().time() > end:
                directory.withdraw()
                directory.forget(number)
                raise ToolError(
                    f"Shell {shell.name} did not accept the command: it is not at its prompt. Check it with shell_view;"
                    ' interrupt the running program with shell_write keys=["C-c"], or open another shell.'
                )
            await monitor.wait_for_change(_POLL_INTERVAL_S)
        return number, recorded

    async def _wait(
        self,
        shell: Shell,
        number: int,
        recorded: Recording,
        monitor: ShellMonitor,
        timeout: timedelta,
        report: ReportProgress,
    ) -> ShellResult:
        now = asyncio.get_running_loop().time
        start = now()
        while (code := shell.directory.exit_code(number)) is None and not monitor.ended:
            left = timeout.total_seconds() - (now() - start)
            if left <= 0:
                return ShellResult(recording=recorded, exit_code=None, shell_ended=False)
            await monitor.wait_for_change(min(_POLL_INTERVAL_S, left))
            await report(now() - start, last_line(recorded))
        if code is None:
            await _wait_until_recorded(recorded)
            return ShellResult(
                recording=recorded,
                exit_code=await self._exit_code_of_ended(shell),
                shell_ended=True,
            )
        await _wait_until_complete(recorded)
        return ShellResult(recording=recorded, exit_code=code, shell_ended=False)

    async def _exit_code_of_ended(self, shell: Shell) -> int | None:
        """Get the exit code from tmux, which may notice the end of a process late."""
        for _ in range(40):
            panes = [pane for pane in await self._tmux.panes() if pane.id == shell.pane.id]
            if not panes or panes[0].exit_code is not None:
                return panes[0].exit_code if panes else None
            await asyncio.sleep(0.05)
        return None


def _check_idle(shell: Shell) -> None:
    if shell.background is not None:
        raise ToolError(
            f"{shell.name} is a background command, not a shell. Open a shell with shell_open."
        )
    if shell.pane.exit_code is not None:
        raise ToolError(f"Shell {shell.name} has ended. Open a new one with shell_open.")
    if shell.is_running():
        running = shell.directory.running()
        what = shell.directory.command(running) if running is not None else shell.pane.program
        raise ToolError(
            f"Shell {shell.name} is busy, still running: {what[:200]}\nWait with shell_view wait_s, send input with"
            ' shell_write, interrupt with shell_write keys=["C-c"], or open another shell.'
        )


async def _wait_until_complete(recorded: Recording) -> None:
    """Wait until tmux has recorded the end of the output: it may arrive after the exit code."""
    end = asyncio.get_running_loop().time() + _RECORDING_TIMEOUT_S
    while not recorded.is_complete() and recorded.size < MAX_RECORDED_BYTES:
        if asyncio.get_running_loop().time() > end:
            return
        await asyncio.sleep(0.01)


async def _wait_until_recorded(recorded: Recording) -> None:
    """Wait for the output of a shell that has ended: it contains no end mark."""
    end = asyncio.get_running_loop().time() + _RECORDING_TIMEOUT_S
    size = -1
    while not recorded.has_started() or recorded.size != size:
        if asyncio.get_running_loop().time() > end:
            return
        size = recorded.size
        await asyncio.sleep(_STABLE_S)


def last_line(recorded: Recording, limit: int = 200) -> str:
    _, tail, between = recorded.ends(head=0, tail=4096)
    if not between:
        tail = recorded.ends(head=4096, tail=0)[0]
    lines = [line.strip() for line in render_terminal_text(tail).split("\n") if line.strip()]
    return lines[-1][-limit:] if lines else ""
