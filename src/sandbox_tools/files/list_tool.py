import stat
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sandbox_tools.files.arguments import SearchedPath
from sandbox_tools.files.directory_walk import SKIPPED_DIRECTORIES, WalkEntry, walk
from sandbox_tools.toolkit.threads import CheckCancelled, run_in_thread
from sandbox_tools.toolkit.truncation import TruncatedLines
from sandbox_tools.toolkit.workspace import Workspace

_MAX_ENTRIES = 1_000
_MAX_DEPTH = 20
_KINDS = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


class ListTool:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def list_directory(
        self,
        path: SearchedPath = ".",
        depth: Annotated[
            int,
            Field(
                ge=1,
                le=_MAX_DEPTH,
                description="Levels to list; 2 includes the contents of subdirectories.",
            ),
        ] = 1,
    ) -> str:
        """List a directory, sorted by name, including hidden files.

        Directories end in /, files show their size, symlinks their target. .git, node_modules, __pycache__, .venv and caches are listed
        but not entered. Returns at most 1,000 entries.
        """
        directory = self._workspace.resolve(path)
        return await run_in_thread(lambda check_cancelled: _list(directory, depth, check_cancelled))


def _list(directory: Path, depth: int, check_cancelled: CheckCancelled) -> str:
    entries = map(_format, walk(directory, check_cancelled, depth=depth))
    return (
        TruncatedLines(_MAX_ENTRIES)
        .extend(entries)
        .render(none=f"{directory} is empty.", more="List a subdirectory or use glob.")
    )


def _format(found: WalkEntry) -> str:
    if found.entry.is_symlink():
        return f"{found.name} -> {_target(found.entry.path)}"
    if found.is_directory:
        return f"{found.name}/" + (
            " (not entered)" if found.entry.name in SKIPPED_DIRECTORIES else ""
        )
    try:
        status = found.entry.stat(follow_symlinks=False)
    except OSError:  # deleted meanwhile
        return found.name
    if stat.S_ISREG(status.st_mode):
        return f"{found.name} ({status.st_size:,} bytes)"
    return f"{found.name} ({_KINDS.get(stat.S_IFMT(status.st_mode), 'device')})"


def _target(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:  # deleted meanwhile
        return "?"
