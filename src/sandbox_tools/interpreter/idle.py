"""Whether a context does something although no client of the interpreter uses it."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sandbox_tools.interpreter.context import Context
from sandbox_tools.interpreter.contexts import Contexts
from sandbox_tools.interpreter.process import CONTEXT_VARIABLE
from sandbox_tools.toolkit.process_tree import find_processes_with

_STEPS = 10
_LISTENING = "0A"
_KEPT_LANGUAGE = "python"


async def stop_idle(contexts: Contexts, *, minutes: float) -> None:
    """Stop kernels of other languages than Python that nobody has used for so long; runs until it is cancelled.

    Steps are counted instead of seconds: the time in which the sandbox is paused does not count.
    """
    while True:
        await asyncio.sleep(minutes * 60 / _STEPS)
        for context in contexts.all():
            context.idle_steps += 1
            if context.idle_steps > _STEPS and _may_stop(context):
                await context.stop(minutes)


def _may_stop(context: Context) -> bool:
    if context.language == _KEPT_LANGUAGE or context.is_busy or context.pid is None:
        return False
    processes = [process.pid for process in find_processes_with(CONTEXT_VARIABLE, context.id)]
    return processes == [context.pid] and not _listens(context.pid)


def _listens(pid: int) -> bool:
    """Whether the process is a server: code of a kernel may have started one in it."""
    listening = {f"socket:[{inode}]" for inode in _listening_inodes(pid)}
    return not listening.isdisjoint(_open_files(pid))


def _listening_inodes(pid: int) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING:
                    yield fields[9]


def _open_files(pid: int) -> Iterable[str]:
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield str(file.readlink())
