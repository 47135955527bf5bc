import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.bounds import BoundedLines, cut_end
from sandbox_tools.files import plain_search, ripgrep
from sandbox_tools.files.query import Query

_FOUND, _FOUND_NOTHING = 0, 1  # the second is ripgrep's


async def search(query: Query, lines: BoundedLines) -> None:
    """Have a program search, ripgrep if there is one, until there are as many lines as are told."""
    program = shutil.which("rg")
    command = ripgrep.command(query, program) if program else plain_search.command(query)
    good = (_FOUND, _FOUND_NOTHING) if program else (_FOUND,)
    async with _running(command, query.directory) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            found = line.decode(errors="replace").rstrip("\r\n")
            told = ripgrep.told(query, found) if program else found
            if told is not None and not lines.add(told):
                return
        await _require(process, good)


@asynccontextmanager
async def _running(command: Sequence[str], directory: Path) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _require(process: Process, good: Sequence[int]) -> None:
    assert process.stderr is not None
    said = (await process.stderr.read()).decode(errors="replace").strip()
    status = await process.wait()
    if status < 0:
        raise ToolError("The search broke off, perhaps since the sandbox had no memory left.")
    if status not in good and said:
        raise ToolError(f"The search cannot be made: {cut_end(said, at_most=1_000)}")
