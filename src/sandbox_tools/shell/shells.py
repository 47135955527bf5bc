import asyncio
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.shell.shell import Shell
from sandbox_tools.shell.shell_directory import ShellDirectory
from sandbox_tools.shell.shell_monitor import ShellMonitor
from sandbox_tools.shell.tmux import Pane, Tmux, TmuxTargetNotFound, recording
from sandbox_tools.toolkit.process_tree import find_process_tree, terminate_process_tree

MAX_SHELLS = 16
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"
_HOOKS = Path(__file__).with_name("hooks.bash")
_SIZE = ("-x", "160", "-y", "50")
_OPEN_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 1.0


@dataclass(frozen=True)
class _Request:
    start: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]
    marks: Mapping[str, str]


class Shells:
    def __init__(self, tmux: Tmux, directory: Path) -> None:
        self.tmux = tmux
        self._directory = directory
        self._opening = asyncio.Lock()

    async def all(self) -> list[Shell]:
        """List all shells, oldest first, including those opened by earlier tool servers."""
        found = [self._find_shell(pane) for pane in await self.tmux.panes()]
        return sorted((s for s in found if s), key=lambda shell: shell.pane.created)

    async def find(self, name: str) -> Shell:
        shells = await self.all()
        for shell in shells:
            if shell.name == name:
                return shell
        others = ", ".join(shell.name for shell in shells) or "none"
        raise ToolError(f"No shell {name} (open: {others}). Open one with shell_open.")

    async def open(
        self,
        name: str | None,
        *,
        cwd: Path,
        environment: Mapping[str, str],
        marks: Mapping[str, str],
    ) -> Shell:
        """Start a shell and wait for its prompt. It has `marks` from its beginning."""
        start = ("bash", "--rcfile", str(_HOOKS), "-i")
        request = _Request(start, cwd, environment, marks)
        async with self._opening:
            shell = await self._start(name or "shell", request, fixed=bool(name))
        with (
            ShellMonitor.open(shell.directory.wake, shell.pane.pid) as monitor,
            suppress(TimeoutError),
        ):
            async with asyncio.timeout(_OPEN_TIMEOUT_S):
                while shell.directory.exit_code(0) is None and not monitor.ended:
                    await monitor.wait_for_change(_POLL_INTERVAL_S)
        if shell.directory.exit_code(0) is None:
            raise await self._open_error(shell)
        return shell

    async def start(
        self,
        command: str,
        *,
        cwd: Path,
        environment: Mapping[str, str],
        marks: Mapping[str, str],
    ) -> Shell:
        """Start a background command in a terminal of its own."""
        script = '. "$SANDBOX_SHELL/environment"; rm -f "$SANDBOX_SHELL/environment"; '
        script += 'set -- "$SANDBOX_SHELL"; unset SANDBOX_SHELL; exec bash -lc "$(<"$1/1.command")"'
        request = _Request(("bash", "-c", script), cwd, environment, marks)
        async with self._opening:
            return await self._start("job", request, command=command)

    async def _start(
        self,
        name: str,
        request: "_Request",
        *,
        fixed: bool = False,
        command: str | None = None,
    ) -> Shell:
        shells = await self.all()
        if not fixed:
            name = _first_free_name(name, {pane.shell for pane in await self.tmux.panes()})
        shells = await self._replace_ended(name, shells)
        await self._evict_ended(shells)
        self._remove_leftovers({shell.name for shell in shells})
        directory = ShellDirectory(self._directory / name)
        directory.make(request.environment)
        if command is not None:
            directory.request(1, command)
        output = await self.tmux.run(
            (
                *("new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", *_SIZE, "-s", name),
                *("-c", str(request.cwd).replace("#", "##")),
                *("-e", f"SANDBOX_SHELL={directory.path}"),
                *(
                    part
                    for name, value in request.marks.items()
                    for part in ("-e", f"{name}={value}")
                ),
                *request.start,
            ),
            recording(f"={name}:", directory.output_path(1)),
        )
        pane, pid = output.split()
        directory.describe(pane=pane, pid=int(pid), background=command)
        return await self.find(name)

    async def _replace_ended(self, name: str, shells: list[Shell]) -> list[Shell]:
        """Remove an ended shell of this name; fail if it is still open."""
        for shell in shells:
            if shell.name == name and shell.pane.exit_code is None:
                raise ToolError(f"Shell {name} already exists. Use it or choose another name.")
            if shell.name == name:
                await self.kill(shell)
        return [shell for shell in shells if shell.name != name]

    async def _evict_ended(self, shells: Sequence[Shell]) -> None:
        """Remove the oldest ended shell if the maximum is reached."""
        if len(shells) < MAX_SHELLS:
            return
        ended = [shell for shell in shells if shell.pane.exit_code is not None]
        if not ended:
            names = ", ".join(shell.name for shell in shells)
            raise ToolError(
                f"The maximum of {MAX_SHELLS} shells is open. End one with shell_kill: {names}."
            )
        await self.kill(ended[0])

    def _remove_leftovers(self, names: AbstractSet[str]) -> None:
        """Remove the directories of shells whose tmux server is gone, as after a restart without memory."""
        for path in self._directory.glob("*"):
            directory = ShellDirectory(path)
            pid = directory.description().get("pid")
            if path.name not in names and isinstance(pid, int) and not find_process_tree(pid):
                directory.remove()

    async def _open_error(self, shell: Shell) -> ToolError:
        screen = await self._last_screen(shell)
        await self.kill(shell)
        return ToolError(
            f"The shell showed no prompt within {_OPEN_TIMEOUT_S:g} s and was closed. Check ~/.bashrc and"
            f" ~/.profile: one of them may block or exit. Its screen:\n{screen}"
        )

    async def _last_screen(self, shell: Shell) -> str:
        try:
            return await self.tmux.screen(shell.pane)
        except TmuxTargetNotFound:
            return ""

    async def write(self, shell: Shell, text: str, keys: Sequence[str]) -> None:
        pane = shell.pane.id
        commands: list[Sequence[str]] = [("copy-mode", "-q", "-t", pane)]
        if text:
            buffer = f"to-{shell.name}"
            commands += [
                ("load-buffer", "-b", buffer, "-"),
                ("paste-buffer", "-d", "-b", buffer, "-t", pane),
            ]
        if keys:
            commands.append(("send-keys", "-t", pane, *keys))
        await self.tmux.run(*commands, stdin=text.encode(errors="surrogateescape"))

    async def kill(self, shell: Shell) -> bool:
        """End a shell and its processes; return whether all have ended."""
        processes = find_process_tree(shell.pane.pid) if shell.pane.exit_code is None else set()
        with suppress(TmuxTargetNotFound):
            await self.tmux.run(("kill-session", "-t", f"={shell.name}"))
        is_gone = not processes or await terminate_process_tree(shell.pane.pid, processes)
        shell.directory.remove()
        return is_gone

    def _find_shell(self, pane: Pane) -> Shell | None:
        """Return our shell of this pane; None for panes that a person created on the same tmux server."""
        if not re.fullmatch(NAME, pane.shell):
            return None
        directory = ShellDirectory(self._directory / pane.shell)
        described = directory.description()
        if (described.get("pane"), described.get("pid")) != (pane.id, pane.pid):
            return None
        background = described.get("background")
        return Shell(pane, directory, background if isinstance(background, str) else None)


def _first_free_name(kind: str, names: set[str]) -> str:
    return next(name for n in range(1, len(names) + 2) if (name := f"{kind}-{n}") not in names)
