from itertools import takewhile
from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.files.arguments import SearchedPath
from sandbox_tools.files.directory_walk import SKIPPED_DIRECTORIES, WalkEntry, walk
from sandbox_tools.files.glob_patterns import InvalidGlob, compile_glob
from sandbox_tools.toolkit.threads import CheckCancelled, run_in_thread
from sandbox_tools.toolkit.truncation import TruncatedLines
from sandbox_tools.toolkit.workspace import Workspace

_FILES = 200
_MAX_FILES = 2_000
_WILDCARDS = set("*?[{\\")


class GlobTool:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def glob(
        self,
        pattern: Annotated[
            str,
            Field(
                min_length=1,
                max_length=1000,
                description="Glob for paths below `path`, e.g. **/*.py, src/*.{ts,tsx} or test_?.py. * and ? match within"
                " a name, ** any number of directories, [abc] and {a,b} alternatives.",
            ),
        ],
        path: SearchedPath = ".",
        limit: Annotated[
            int, Field(ge=1, le=_MAX_FILES, description="Maximum number of files.")
        ] = _FILES,
    ) -> str:
        """Find files by name. Returns absolute paths, most recently modified first.

        Includes hidden files. Skips .git, node_modules, __pycache__, .venv and caches unless the pattern or path names them. To
        search the contents of files, use grep.
        """
        fixed, rest = _split(pattern)
        directory = self._workspace.resolve(path)
        base = self._workspace.resolve(fixed) if fixed.startswith("~") else directory / fixed
        return await run_in_thread(
            lambda check_cancelled: _glob(base, rest, limit, check_cancelled)
        )


def _split(pattern: str) -> tuple[str, str]:
    """Split off leading directories without wildcards, so that only they are searched."""
    parts = pattern.split("/")
    fixed = takewhile(lambda part: not _WILDCARDS & set(part), parts[:-1])
    count = len(list(fixed))
    return "/".join(parts[:count]) or ("/" if count else ""), "/".join(parts[count:])


def _glob(base: Path, pattern: str, limit: int, check_cancelled: CheckCancelled) -> str:
    matches = _newest_first(base, pattern, check_cancelled)
    return (
        TruncatedLines(limit)
        .extend(str(base / name) for name in matches)
        .render(
            none=f"No files in {base} match {pattern}.",
            more=f"{len(matches):,} files match: narrow the pattern or raise limit.",
        )
    )


def _newest_first(base: Path, pattern: str, check_cancelled: CheckCancelled) -> list[str]:
    try:
        matching = compile_glob(pattern)
    except InvalidGlob as error:
        raise ToolError(str(error)) from None
    skipped = SKIPPED_DIRECTORIES - set(pattern.split("/"))
    files = (
        found for found in walk(base, check_cancelled, skipped=skipped) if not found.is_directory
    )
    matches = [found for found in files if matching.fullmatch(found.name)]
    return [found.name for found in sorted(matches, key=_modified_at, reverse=True)]


def _modified_at(found: WalkEntry) -> float:
    try:
        return found.entry.stat(follow_symlinks=False).st_mtime
    except OSError:  # deleted meanwhile
        return 0
