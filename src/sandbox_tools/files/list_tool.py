import stat
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sandbox_tools.files.arguments import SearchedPath
from sandbox_tools.files.directory_walk import LEFT_OUT, Found, walk
from sandbox_tools.toolkit.threads import Check, in_thread
from sandbox_tools.toolkit.truncation import BoundedLines
from sandbox_tools.toolkit.workspace import Workspace

_MOST_ENTRIES = 1_000
_DEEPEST = 20
_KINDS = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


class Listing:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def list_directory(
        self,
        path: SearchedPath = ".",
        depth: Annotated[
            int,
            Field(
                ge=1, le=_DEEPEST, description="2 also lists what is in its directories, and so on."
            ),
        ] = 1,
    ) -> str:
        """List a directory by name, hidden files too: directories end in /, files have their size, symlinks say to where.

        With a depth, .git, node_modules, __pycache__, .venv and caches are listed but not entered. At most 1,000 entries.
        """
        directory = self._workspace.path(path)
        return await in_thread(lambda check: _list(directory, depth, check))


def _list(directory: Path, depth: int, check: Check) -> str:
    entries = map(_tell, walk(directory, check, depth=depth))
    return (
        BoundedLines(_MOST_ENTRIES)
        .extend(entries)
        .tell(none=f"{directory} is empty.", more="List one of its directories, or use glob.")
    )


def _tell(found: Found) -> str:
    if found.entry.is_symlink():
        return f"{found.name} -> {_target(found.entry.path)}"
    if found.is_directory:
        return f"{found.name}/" + (" (not entered)" if found.entry.name in LEFT_OUT else "")
    try:
        status = found.entry.stat(follow_symlinks=False)
    except OSError:  # it is gone by now
        return found.name
    if stat.S_ISREG(status.st_mode):
        return f"{found.name} ({status.st_size:,} bytes)"
    return f"{found.name} ({_KINDS.get(stat.S_IFMT(status.st_mode), 'device')})"


def _target(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:  # it is gone by now
        return "?"
