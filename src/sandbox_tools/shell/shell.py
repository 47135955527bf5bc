from dataclasses import dataclass
from pathlib import Path

from sandbox_tools.shell.shell_directory import ShellDirectory
from sandbox_tools.shell.tmux import Pane


@dataclass(frozen=True)
class Shell:
    """A shell or background command: its tmux pane and its directory."""

    pane: Pane
    directory: ShellDirectory
    background: str | None

    @property
    def name(self) -> str:
        return self.pane.shell

    def is_running(self) -> bool:
        """Check whether a program has the terminal, started by shell_run or typed by a person."""
        if self.pane.exit_code is not None:
            return False
        return (
            self.background is not None
            or self.directory.running() is not None
            or _foreground_group(self.pane.pid) != self.pane.pid
        )


def _foreground_group(shell: int) -> int:
    """Return the foreground process group; at its prompt it is the shell."""
    try:
        stat = Path(f"/proc/{shell}/stat").read_bytes()
    except FileNotFoundError:
        return shell
    return int(stat.rpartition(b")")[2].split()[5])
