from dataclasses import dataclass
from pathlib import Path

from fastmcp.exceptions import ToolError


@dataclass(frozen=True)
class Workspace:
    """The working directory: base of relative paths and of commands."""

    root: Path

    def resolve(self, path: str) -> Path:
        """Make a path absolute and expand `~`; symlinks and `..` are kept."""
        if "\0" in path:
            raise ToolError("The path contains a NUL character. Remove it.")
        try:
            return self.root / Path(path).expanduser()
        except RuntimeError:
            raise ToolError(
                f"{path.partition('/')[0]} has no home directory. Use an absolute path."
            ) from None
