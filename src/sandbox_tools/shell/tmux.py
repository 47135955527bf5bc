import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.shell.environment import inherited_environment
from sandbox_tools.toolkit.process_tree import is_alive

_CONFIGURATION = Path(__file__).with_name("tmux.conf")
_FIELDS = (
    "session_name pane_id pane_pid pid pane_dead_status pane_dead_signal session_created"
    " alternate_on pane_current_command pane_current_path"
)
_FORMAT = "|".join(f"#{{{name}}}" for name in _FIELDS.split())
_GONE = ("no server running", "error connecting", "can't find", "no current", "lost server")
_SERVER_EXITING = b"server exited unexpectedly"
_TRIES = 10
_TIMEOUT_S = 60
_MAX_STATUS_POLLS = 100
_RECORDED_BLOCKS = 64 * 1024  # of 512 bytes

MAX_RECORDED_BYTES = _RECORDED_BLOCKS * 512


class TmuxTargetNotFound(Exception):
    """The tmux server is not running or has no such target."""


@dataclass(frozen=True, kw_only=True)
class Pane:
    shell: str
    id: str
    pid: int
    server: int
    is_ending: bool  # the process has ended, but tmux has no status yet
    exit_code: int | None  # negative: signal number
    created: int
    full_screen: bool
    program: str
    cwd: str


class Tmux:
    """The tmux server of the shells; it outlives the tool server."""

    def __init__(self, name: str) -> None:
        self._name = name

    def attach_command(self, shell: str) -> str:
        return f"tmux -L {self._name} attach -t {shell}"

    async def run(self, *commands: Sequence[str], stdin: bytes | None = None) -> str:
        """Run tmux commands in order and return their output."""
        arguments = ["tmux", "-u", "-L", self._name, "-f", str(_CONFIGURATION)]
        for command in commands:
            arguments += [*map(_escaped, command), ";"]
        for _ in range(_TRIES):
            done = await _run_tmux(arguments[:-1], stdin or b"")
            if _SERVER_EXITING not in done.stderr:  # an exiting server did nothing
                break
            await asyncio.sleep(0.05)
        if done.returncode:
            _raise_error(done.stderr.decode(errors="replace").strip())
        return done.stdout.decode(errors="replace")

    async def panes(self) -> list[Pane]:
        for _ in range(_MAX_STATUS_POLLS):
            panes = await self._panes()
            ending = [pane for pane in panes if pane.is_ending]
            if not ending:
                break
            _send_sigchld(ending[0].server)
            await asyncio.sleep(0.02)
        return panes

    async def _panes(self) -> list[Pane]:
        try:
            output = await self.run(("list-panes", "-a", "-F", _FORMAT))
        except TmuxTargetNotFound:
            return []
        return [_parse(line) for line in output.splitlines()]

    async def screen(self, pane: Pane, *, above: int = 0) -> str:
        """Return the visible screen, preceded by `above` lines of the scrollback."""
        output = await self.run(("capture-pane", "-p", "-J", "-t", pane.id, "-S", str(-above)))
        return "\n".join(line.rstrip() for line in output.rstrip().split("\n"))


def _send_sigchld(server: int) -> None:
    """Make tmux reap its children: version 3.3a misses every fifth SIGCHLD."""
    with suppress(ProcessLookupError):
        os.kill(server, signal.SIGCHLD)


async def _run_tmux(arguments: Sequence[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        # In a thread, not asyncio's: uvloop leaks its pipes into the tmux server, which never closes them.
        return await asyncio.to_thread(
            subprocess.run,
            arguments,
            input=stdin,
            capture_output=True,
            env=inherited_environment(),
            start_new_session=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise ToolError(
            "Shells and background commands need tmux, which is not installed."
            " Install it (sudo apt-get install tmux), or use run_command without background."
        ) from None
    except subprocess.TimeoutExpired:
        raise ToolError(
            "tmux, which runs the shells, does not respond. Use run_command instead."
        ) from None


def recording(pane: str, path: Path) -> Sequence[str]:
    """Build the tmux command that records a pane's output to a file, up to a maximum size."""
    # ulimit: enforced by the kernel, also while no tool server runs.
    script = f"ulimit -f {_RECORDED_BLOCKS}; exec cat >> {shlex.quote(str(path))}"
    return ("pipe-pane", "-t", pane, script.replace("#", "##").replace("%", "%%"))


def _escaped(argument: str) -> str:
    """Escape a trailing semicolon, which would end the command."""
    return f"{argument[:-1]}\\;" if argument.endswith(";") else argument


def _raise_error(output: str) -> None:
    if any(sign in output for sign in _GONE) or not output:
        raise TmuxTargetNotFound(output)
    raise ToolError(f"tmux failed: {output}.")


def _parse(line: str) -> Pane:
    name, pane, pid, server, status, ended_by, created, full, program, cwd = line.split("|", 9)
    return Pane(
        shell=name,
        id=pane,
        pid=int(pid),
        server=int(server),
        is_ending=not status and not ended_by and not is_alive(int(pid)),
        exit_code=-int(ended_by) if ended_by else int(status) if status else None,
        created=int(created),
        full_screen=full == "1",
        program=program,
        cwd=cwd,
    )
