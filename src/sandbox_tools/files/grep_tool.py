import os
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.files.arguments import SearchedPath
from sandbox_tools.files.regular_files import open_regular_file
from sandbox_tools.files.ripgrep import Mode, Query, search
from sandbox_tools.toolkit.truncation import TruncatedLines
from sandbox_tools.toolkit.workspace import Workspace

_LINES = 200
_MAX_LINES = 2_000
_MAX_CONTEXT = 50


class GrepTool:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def grep(
        self,
        pattern: Annotated[
            str,
            Field(
                min_length=1,
                max_length=10_000,
                description="Regular expression (ripgrep syntax), matched line by line; no look-around or back-references.",
            ),
        ],
        path: SearchedPath = ".",
        glob: Annotated[
            str | None,
            Field(
                max_length=1_000,
                description="Search only matching files: *.py and *.{ts,tsx} match names, src/**/*.py paths below `path`,"
                " !*.min.js excludes.",
            ),
        ] = None,
        mode: Annotated[
            Mode,
            Field(
                description="content: matching lines as path:number:line. files: paths of files with a match."
                " count: path:number of matching lines."
            ),
        ] = "content",
        *,
        context: Annotated[
            int,
            Field(
                ge=0,
                le=_MAX_CONTEXT,
                description="Lines before and after each match, as path-number-line; only with mode=content.",
            ),
        ] = 0,
        ignore_case: Annotated[bool, Field(description="Match case-insensitively.")] = False,
        literal: Annotated[bool, Field(description="Treat the pattern as plain text.")] = False,
        limit: Annotated[
            int, Field(ge=1, le=_MAX_LINES, description="Maximum number of lines in the result.")
        ] = _LINES,
    ) -> str:
        """Search the contents of a file, or of all files below a directory, with ripgrep. Results are sorted by path.

        Includes hidden and git-ignored files. Skips binary files, .git, node_modules, __pycache__, .venv and caches; to search a
        skipped directory, pass it as path.
        """
        query = Query(
            pattern=pattern,
            root=self._workspace.resolve(path),
            mode=mode,
            glob=glob,
            context=context,
            is_literal=literal,
            ignores_case=ignore_case,
        )
        lines = TruncatedLines(limit)
        _check(query)
        await search(query, lines)
        return lines.render(
            none=f"No matches in {query.root}.",
            more="Narrow the search or raise limit.",
        )


def _check(query: Query) -> None:
    # ripgrep ignores missing and unreadable files, and blocks on pipes.
    (os.scandir if query.root.is_dir() else open_regular_file)(query.root).close()
    if "\0" in f"{query.pattern}{query.glob}":
        raise ToolError("The pattern contains a NUL character. Remove it.")
