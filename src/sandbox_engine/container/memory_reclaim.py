import asyncio
from asyncio.subprocess import DEVNULL
from contextlib import suppress
from datetime import timedelta

from sandbox_engine.container import cgroups
from sandbox_engine.container.cgroups import Cgroup
from sandbox_engine.machine import resources
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

# Both take a directory of the group as $0. Each write continues until nothing more can be
# reclaimed, and stops when its process is killed. No limit is changed, so nothing must be restored.
_TAKE_V1 = 'echo 1 > "$0/memory.force_empty"'
_TAKE_V2 = 'cat "$0/memory.current" > "$0/memory.reclaim"'
_GENTLY = ("ionice", "-c", "3", "nice", "-n", "19")


def is_possible() -> bool:
    """Return whether this machine can reclaim the memory of frozen processes.

    Without swap only pages of files could be dropped; the kernel does that anyway under memory
    pressure, and the sandbox would read them again when it is resumed.
    """
    if cgroups.is_unified():
        has_way = any(cgroups.ROOT.glob("*/memory.reclaim"))
    else:
        has_way = (cgroups.ROOT / "memory" / "memory.force_empty").exists()
    return has_way and resources.memory().swap_total > 0


class MemoryReclaim:
    """Moves the memory of paused sandboxes to swap, one sandbox at a time."""

    def __init__(self, *, after: timedelta) -> None:
        self._after = after
        self._lock = asyncio.Lock()
        self._tasks: dict[Cgroup, asyncio.Task[None]] = {}

    def begin(self, cgroup: Cgroup) -> None:
        """Schedule the reclaim of a frozen group's memory."""
        if self._after >= timedelta(0) and cgroup not in self._tasks and is_possible():
            task = asyncio.create_task(self._return(cgroup))
            self._tasks[cgroup] = task
            task.add_done_callback(lambda _: self._tasks.pop(cgroup, None))

    def end(self, cgroup: Cgroup) -> None:
        """Cancel the reclaim before the group's processes are thawed."""
        if task := self._tasks.pop(cgroup, None):
            task.cancel()
        cgroup.allow_swap(allowed=False)

    async def _return(self, cgroup: Cgroup) -> None:
        await asyncio.sleep(self._after.total_seconds())
        async with self._lock:
            before = cgroup.usage()
            cgroup.allow_swap(allowed=True)
            await _take(cgroup)
            kept = cgroup.usage()
        log.info(
            "memory reclaimed",
            group=cgroup.path,
            mib=(before.memory_used + before.memory_cache) >> 20,
            kept_mib=(kept.memory_used + kept.memory_cache) >> 20,
        )


async def _take(cgroup: Cgroup) -> None:
    script = _TAKE_V2 if cgroups.is_unified() else _TAKE_V1
    directory = str(cgroup.directory("memory"))
    process = await asyncio.create_subprocess_exec(
        *_GENTLY, "sh", "-c", script, directory, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
