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
                description="A regular expression, matched within lines, without look-around or back-references.",
            ),
        ],
        path: SearchedPath = ".",
        glob: Annotated[
            str | None,
            Field(
                max_length=1_000,
                description="Only in files like this: *.py and *.{ts,tsx} are about names, src/**/*.py about paths below"
                " `path`, and !*.min.js leaves out.",
            ),
        ] = None,
        mode: Annotated[
            Mode,
            Field(
                description="content: the lines that match, as path:number:line. files: only the paths of files with a"
                " match. count: path:number of lines that match."
            ),
        ] = "content",
        *,
        context: Annotated[
            int,
            Field(
                ge=0,
                le=_MAX_CONTEXT,
                description="With mode=content, how many lines to show before and after each match, as path-number-line.",
            ),
        ] = 0,
        ignore_case: Annotated[
            bool, Field(description="Take letters of either case for the same.")
        ] = False,
        literal: Annotated[
            bool, Field(description="The pattern is plain text, not a regular expression.")
        ] = False,
        limit: Annotated[
            int, Field(ge=1, le=_MAX_LINES, description="How many lines of answer at most.")
        ] = _LINES,
    ) -> str:
        """Search the text of files for a pattern, in a directory and all below it, or in one file; in the order of paths.

        Hidden and git-ignored files are searched too, but nothing in .git, node_modules, __pycache__, .venv and caches,
        unless the path leads there, and no binary files.
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
            none=f"Nothing in {query.root} matches.",
            more="There are more: narrow the search, or raise the limit.",
        )


def _check(query: Query) -> None:
    # What is not there, may not be read, or is a pipe, is said here: programs that search pass it over, or wait for it.
    (os.scandir if query.root.is_dir() else open_regular_file)(query.root).close()
    if "\0" in f"{query.pattern}{query.glob}":
        raise ToolError("No text has a NUL character in it, so a pattern for one has none either.")
