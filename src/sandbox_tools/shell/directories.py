import os
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.toolkit.workspace import Workspace


def state_directory() -> Path:
    """Return the directory for shells and long outputs, writable by this account only."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "sandbox-tools"


def working_directory(workspace: Workspace, cwd: str | None) -> Path:
    """Resolve the directory to run in; the default is the working directory."""
    path = workspace.resolve(cwd) if cwd else workspace.root
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise ToolError(f"cwd {path} {what}. Choose another cwd or create it first.")
    return path
