import asyncio
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastmcp.exceptions import ToolError

from sandbox_tools.files.directory_walk import SKIPPED_DIRECTORIES
from sandbox_tools.toolkit.truncation import MAX_LINE_CHARACTERS, TruncatedLines, truncate_end

Mode = Literal["content", "files", "count"]


@dataclass(frozen=True, kw_only=True)
class Query:
    """A search and the form of its result."""

    pattern: str
    root: Path
    mode: Mode
    glob: str | None = None
    context: int = 0
    is_literal: bool = False
    ignores_case: bool = False

    @property
    def directory(self) -> Path:
        return self.root if self.root.is_dir() else self.root.parent

    def absolute(self, name: str) -> str:
        """Return the absolute path, which other tools accept."""
        return str(self.directory / name)


# The user's ripgrep configuration and ignore files do not change the results.
_FIXED = "--crlf --no-config --no-ignore --hidden --no-messages --color=never --sort=path".split()
_LONG_LINES = ["--max-columns-preview", f"--max-columns={MAX_LINE_CHARACTERS}"]
_MODES = {
    "content": ["--with-filename", "--null", "--line-number", "--no-heading", *_LONG_LINES],
    "files": ["--files-with-matches"],
    "count": ["--with-filename", "--null", "--count"],
}
_NUMBERED = re.compile(r"\d+([:-])")


def command(query: Query, program: str) -> list[str]:
    """Build the command line, to be run in `query.directory`, where globs start."""
    return [
        *(program, *_FIXED, *_MODES[query.mode], *_search_options(query)),
        *("--regexp", query.pattern, "--", f"./{query.root.relative_to(query.directory)}"),
    ]


def _search_options(query: Query) -> list[str]:
    globs = [query.glob] if query.glob else []
    globs += [f"!{name}/" for name in sorted(SKIPPED_DIRECTORIES)]
    return [
        *(f"--glob={glob}" for glob in globs),
        *(["--fixed-strings"] if query.is_literal else []),
        *(["--ignore-case"] if query.ignores_case else []),
        *([f"--context={query.context}"] if query.mode == "content" else []),
    ]


def format_line(query: Query, line: str) -> str | None:
    """Convert a line of ripgrep's output to a line of the result; None to leave it out."""
    if query.mode == "files" or line == "--":
        return query.absolute(line) if query.mode == "files" else line
    name, _, rest = line.partition("\0")
    if query.mode == "count":
        return f"{query.absolute(name)}:{rest}"
    number = _NUMBERED.match(rest)
    # Lines without a number are notes about binary files.
    return f"{query.absolute(name)}{number[1]}{rest}" if number else None


_MATCHES, _NO_MATCHES = 0, 1


async def search(query: Query, lines: TruncatedLines) -> None:
    """Run ripgrep until it ends or `lines` is full."""
    async with _running(query) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            found = format_line(query, line.decode(errors="replace").rstrip("\r\n"))
            if found is not None and not lines.add(found):
                return
        await _require_success(process)


@asynccontextmanager
async def _running(query: Query) -> AsyncIterator[Process]:
    program = shutil.which("rg")
    if program is None:
        raise ToolError(
            "grep needs ripgrep, which is not installed. Install it with run_command"
            " (sudo apt-get install ripgrep), or search with grep -rn in run_command."
        )
    process = await asyncio.create_subprocess_exec(
        *command(query, program),
        cwd=query.directory,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _require_success(process: Process) -> None:
    assert process.stderr is not None
    errors = (await process.stderr.read()).decode(errors="replace").strip()
    status = await process.wait()
    if status < 0:
        raise ToolError("The search was killed: the sandbox may be out of memory.")
    if status not in (_MATCHES, _NO_MATCHES) and errors:
        raise ToolError(f"The search failed: {truncate_end(errors, limit=1_000)}")
