import os
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.toolkit.workspace import Workspace


def state_directory() -> Path:
    """Say where the shells and long outputs are kept: not where others than this account can put anything."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "sandbox-tools"


def directory(workspace: Workspace, given: str | None) -> Path:
    """Find the directory that something is to run in."""
    path = workspace.resolve(given) if given else workspace.root
    if not path.is_dir():
        what = "is no directory" if path.exists() else "does not exist"
        raise ToolError(f"The directory {path} {what}. Give another cwd, or make it first.")
    return path
