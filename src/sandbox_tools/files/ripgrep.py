import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp.exceptions import ToolError

from sandbox_tools.bounds import MOST_OF_A_LINE, BoundedLines, cut_end
from sandbox_tools.files.query import Query
from sandbox_tools.files.walking import LEFT_OUT

# Nothing of the machine's is to have it find anything else than `plain_search` would.
_ALIKE = "--crlf --no-config --no-ignore --hidden --no-messages --color=never --sort=path".split()
_LONG_LINES = ["--max-columns-preview", f"--max-columns={MOST_OF_A_LINE}"]
_MODES = {
    "content": ["--with-filename", "--null", "--line-number", "--no-heading", *_LONG_LINES],
    "files": ["--files-with-matches"],
    "count": ["--with-filename", "--null", "--count"],
}
_NUMBERED = re.compile(r"\d+([:-])")
_FAILED = 2


async def search(query: Query, program: str, lines: BoundedLines) -> None:
    """Have ripgrep search until there are as many lines as are told."""
    async with _running(program, query) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            told = _told(query, line.decode(errors="replace").rstrip("\r\n"))
            if told is not None and not lines.add(told):
                return
        await _require_success(process)


@asynccontextmanager
async def _running(program: str, query: Query) -> AsyncIterator[Process]:
    """Run it where the globs are to begin."""
    process = await asyncio.create_subprocess_exec(
        *(program, *_ALIKE, *_MODES[query.mode], *_asked(query)),
        *("--regexp", query.pattern, "--", f"./{query.root.relative_to(query.directory)}"),
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


def _asked(query: Query) -> list[str]:
    globs = [query.glob] if query.glob else []
    globs += [f"!{name}/" for name in sorted(LEFT_OUT)]
    return [
        *(f"--glob={glob}" for glob in globs),
        *(["--fixed-strings"] if query.is_literal else []),
        *(["--ignore-case"] if query.ignores_case else []),
        *([f"--context={query.context}"] if query.mode == "content" else []),
    ]


def _told(query: Query, line: str) -> str | None:
    if query.mode == "files" or line == "--":
        return query.told(line) if query.mode == "files" else line
    name, _, rest = line.partition("\0")
    if query.mode == "count":
        return f"{query.told(name)}:{rest}"
    number = _NUMBERED.match(rest)
    # What has no number is about a binary file, in which nothing is shown.
    return f"{query.told(name)}{number[1]}{rest}" if number else None


async def _require_success(process: Process) -> None:
    assert process.stderr is not None
    said = (await process.stderr.read()).decode(errors="replace").strip()
    if await process.wait() == _FAILED and said:
        raise ToolError(f"The search cannot be made: {cut_end(said, at_most=1_000)}")
