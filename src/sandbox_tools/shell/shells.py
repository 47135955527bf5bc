import asyncio
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.shell.process_tree import find_process_tree, terminate_process_tree
from sandbox_tools.shell.shell import Shell
from sandbox_tools.shell.shell_directory import ShellDirectory
from sandbox_tools.shell.shell_monitor import ShellMonitor
from sandbox_tools.shell.tmux import Pane, Tmux, TmuxTargetNotFound, recording

MAX_SHELLS = 16
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"
_HOOKS = Path(__file__).with_name("hooks.bash")
_SIZE = ("-x", "160", "-y", "50")
_OPEN_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 1.0


class Shells:
    def __init__(self, tmux: Tmux, directory: Path) -> None:
        self.tmux = tmux
        self._directory = directory
        self._opening = asyncio.Lock()

    async def all(self) -> list[Shell]:
        """Find those there are, whoever opened them; the oldest first."""
        found = [self._find_shell(pane) for pane in await self.tmux.panes()]
        return sorted((s for s in found if s), key=lambda shell: shell.pane.created)

    async def find(self, name: str) -> Shell:
        shells = await self.all()
        for shell in shells:
            if shell.name == name:
                return shell
        others = ", ".join(shell.name for shell in shells) or "none"
        raise ToolError(
            f"There is no shell {name} (there are: {others}). Open one with shell_open."
        )

    async def open(self, name: str | None, *, cwd: Path, environment: Mapping[str, str]) -> Shell:
        """Start a shell, and wait until it is at its prompt."""
        start = ("bash", "--rcfile", str(_HOOKS), "-i")
        async with self._opening:
            shell = await self._start(name or "shell", start, cwd, environment, fixed=bool(name))
        with (
            ShellMonitor.of(shell.directory.wake, shell.pane.pid) as monitor,
            suppress(TimeoutError),
        ):
            async with asyncio.timeout(_OPEN_TIMEOUT_S):
                while shell.directory.exit_code(0) is None and not monitor.ended:
                    await monitor.wait_for_change(_POLL_INTERVAL_S)
        if shell.directory.exit_code(0) is None:
            raise await self._open_error(shell)
        return shell

    async def start(self, command: str, *, cwd: Path, environment: Mapping[str, str]) -> Shell:
        """Start a command in the background, with a terminal of its own."""
        script = '. "$SANDBOX_SHELL/environment"; rm -f "$SANDBOX_SHELL/environment"; '
        script += 'set -- "$SANDBOX_SHELL"; unset SANDBOX_SHELL; exec bash -lc "$(<"$1/1.command")"'
        async with self._opening:
            return await self._start(
                "job", ("bash", "-c", script), cwd, environment, command=command
            )

    async def _start(
        self,
        name: str,
        start: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
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
        directory.make(environment)
        if command is not None:
            directory.request(1, command)
        output = await self.tmux.run(
            (
                *("new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", *_SIZE, "-s", name),
                *(
                    "-c",
                    str(cwd).replace("#", "##"),
                    "-e",
                    f"SANDBOX_SHELL={directory.path}",
                    *start,
                ),
            ),
            recording(f"={name}:", directory.recorded(1)),
        )
        pane, pid = output.split()
        directory.describe(pane=pane, pid=int(pid), background=command)
        return await self.find(name)

    async def _replace_ended(self, name: str, shells: list[Shell]) -> list[Shell]:
        """Forget the one of that name, which must have ended."""
        for shell in shells:
            if shell.name == name and shell.pane.exit_code is None:
                raise ToolError(f"There is a shell {name} already. Use it, or choose another name.")
            if shell.name == name:
                await self.kill(shell)
        return [shell for shell in shells if shell.name != name]

    async def _evict_ended(self, shells: Sequence[Shell]) -> None:
        """Forget the oldest that has ended if there are as many as may be."""
        if len(shells) < MAX_SHELLS:
            return
        ended = [shell for shell in shells if shell.pane.exit_code is not None]
        if not ended:
            names = ", ".join(shell.name for shell in shells)
            raise ToolError(
                f"{MAX_SHELLS} shells are open, and more there may not be. End one with shell_kill: {names}."
            )
        await self.kill(ended[0])

    def _remove_leftovers(self, names: AbstractSet[str]) -> None:
        """Remove what shells left that ended with their tmux server, as when the sandbox's memory was not kept."""
        for path in self._directory.glob("*"):
            directory = ShellDirectory(path)
            pid = directory.description().get("pid")
            if path.name not in names and isinstance(pid, int) and not find_process_tree(pid):
                directory.remove()

    async def _open_error(self, shell: Shell) -> ToolError:
        screen = await self._last_screen(shell)
        await self.kill(shell)
        return ToolError(
            f"The shell did not come to its prompt in {_OPEN_TIMEOUT_S:g} s, so there is none. Perhaps ~/.bashrc"
            f" or ~/.profile holds it up or ends it. It showed:\n{screen}"
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
        """End a shell with all that it started; whether all of it is gone."""
        ours = find_process_tree(shell.pane.pid) if shell.pane.exit_code is None else set()
        with suppress(TmuxTargetNotFound):
            await self.tmux.run(("kill-session", "-t", f"={shell.name}"))
        is_gone = not ours or await terminate_process_tree(shell.pane.pid, ours)
        shell.directory.remove()
        return is_gone

    def _find_shell(self, pane: Pane) -> Shell | None:
        """Tell ours from what a person started on the same tmux server, in the same session too."""
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
