from dataclasses import dataclass
from pathlib import Path

from sandbox_tools.shell.shell_directory import ShellDirectory
from sandbox_tools.shell.tmux import Pane


@dataclass(frozen=True)
class Shell:
    """A shell, or a command in the background, with what tmux and its directory tell about it."""

    pane: Pane
    directory: ShellDirectory
    background: str | None

    @property
    def name(self) -> str:
        return self.pane.shell

    def is_running(self) -> bool:
        """Whether something other than its prompt has the terminal, started by shell_run or typed into it."""
        if self.pane.exit_code is not None:
            return False
        return (
            self.background is not None
            or self.directory.running() is not None
            or _foreground_group(self.pane.pid) != self.pane.pid
        )


def _foreground_group(shell: int) -> int:
    """Find the process group that has the terminal: at its prompt the shell itself."""
    try:
        stat = Path(f"/proc/{shell}/stat").read_bytes()
    except FileNotFoundError:
        return shell
    return int(stat.rpartition(b")")[2].split()[5])
