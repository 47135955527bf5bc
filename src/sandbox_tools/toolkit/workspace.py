from dataclasses import dataclass
from pathlib import Path

from fastmcp.exceptions import ToolError


@dataclass(frozen=True)
class Workspace:
    """The directory that agents work in: what paths are relative to, and where commands run."""

    root: Path

    def resolve(self, path: str) -> Path:
        """Make a path absolute, with `~` as the home directory; symlinks and `..` stay as they are."""
        if "\0" in path:
            raise ToolError("A path has no NUL character in it.")
        try:
            return self.root / Path(path).expanduser()
        except RuntimeError:
            raise ToolError(f"There is no user {path.partition('/')[0]} with a home.") from None
