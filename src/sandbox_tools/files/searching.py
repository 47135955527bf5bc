import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp.exceptions import ToolError

from sandbox_tools.files import ripgrep
from sandbox_tools.files.query import Query
from sandbox_tools.toolkit.truncation import BoundedLines, cut_end

_MATCHES, _NO_MATCHES = 0, 1


async def search(query: Query, lines: BoundedLines) -> None:
    """Run ripgrep until it ends or `lines` is full."""
    async with _running(query) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            found = ripgrep.told(query, line.decode(errors="replace").rstrip("\r\n"))
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
        *ripgrep.command(query, program),
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
        raise ToolError(f"The search failed: {cut_end(errors, at_most=1_000)}")
