from itertools import takewhile
from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.files.arguments import SearchedPath
from sandbox_tools.files.directory_walk import LEFT_OUT, Found, walk
from sandbox_tools.files.glob_patterns import InvalidPattern, compile_glob
from sandbox_tools.toolkit.threads import Check, in_thread
from sandbox_tools.toolkit.truncation import BoundedLines
from sandbox_tools.toolkit.workspace import Workspace

_FILES = 200
_MOST_FILES = 2_000
_MAGIC = set("*?[{\\")


class Globbing:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def glob(
        self,
        pattern: Annotated[
            str,
            Field(
                min_length=1,
                max_length=1000,
                description="What the path below `path` is to match, e.g. **/*.py, src/*.{ts,tsx} or test_?.py: * and ? match"
                " within a name, ** any number of directories, [abc] and {a,b} one of several.",
            ),
        ],
        path: SearchedPath = ".",
        limit: Annotated[
            int, Field(ge=1, le=_MOST_FILES, description="How many at most.")
        ] = _FILES,
    ) -> str:
        """Find files by name, the one that changed last first, as absolute paths.

        Hidden files are found too, but nothing in .git, node_modules, __pycache__, .venv and caches unless the pattern or the
        path names them. Use grep to find files by what is in them.
        """
        fixed, rest = _split(pattern)
        directory = self._workspace.path(path)
        base = self._workspace.path(fixed) if fixed.startswith("~") else directory / fixed
        return await in_thread(lambda check: _glob(base, rest, limit, check))


def _split(pattern: str) -> tuple[str, str]:
    """Split off the directories of a pattern that are names and not patterns, so that only there is looked."""
    parts = pattern.split("/")
    fixed = takewhile(lambda part: not _MAGIC & set(part), parts[:-1])
    count = len(list(fixed))
    return "/".join(parts[:count]) or ("/" if count else ""), "/".join(parts[count:])


def _glob(base: Path, pattern: str, limit: int, check: Check) -> str:
    matches = _newest_first(base, pattern, check)
    return (
        BoundedLines(limit)
        .extend(str(base / name) for name in matches)
        .tell(
            none=f"No file in {base} matches {pattern}.",
            more=f"There are {len(matches):,}: narrow the pattern, or raise the limit.",
        )
    )


def _newest_first(base: Path, pattern: str, check: Check) -> list[str]:
    try:
        matching = compile_glob(pattern)
    except InvalidPattern as error:
        raise ToolError(str(error)) from None
    left_out = LEFT_OUT - set(pattern.split("/"))
    files = (found for found in walk(base, check, left_out=left_out) if not found.is_directory)
    matches = [found for found in files if matching.fullmatch(found.name)]
    return [found.name for found in sorted(matches, key=_changed, reverse=True)]


def _changed(found: Found) -> float:
    try:
        return found.entry.stat(follow_symlinks=False).st_mtime
    except OSError:  # it is gone by now
        return 0
