import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sandbox_engine.machine.capacity import Capacity
from sandbox_engine.machine.resources import MIB
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

REASON = "the machine's disk is nearly full"

_AMPLE = 8192 * MIB
_FASTEST = 8192 * MIB  # per second; more than a sandbox writes even to free memory
_LONGEST_LOOK_S, _SHORTEST_LOOK_S = 0.25, 0.02
_BLOCK = 512

Images = Callable[[SandboxRecord], Iterable[Path]]


class Runner(Protocol):
    """Runs sandboxes and can stop one."""

    def running(self) -> Iterable[Sandbox]:
        """List running sandboxes."""

    async def pause_if_running(self, sandbox_id: str, reason: str) -> None:
        """Stop a sandbox if it is running."""


class DiskGuard:
    """Stops sandboxes that write before the machine's disk is full.

    Their disks are sparse files that together can exceed the machine's disk. On a full disk a
    sandbox would lose data that it considers written.
    """

    def __init__(self, *runners: Runner, capacity: Capacity, images: Images) -> None:
        self._runners = runners
        self._capacity = capacity
        self._images = images
        self._written: dict[Sandbox, int] = {}
        self._while_roomy: dict[Sandbox, int] = {}
        self._stopping: dict[Sandbox, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Check until cancelled, more often the less space is left."""
        while True:
            room = self._capacity.disk_room()
            if room < _AMPLE:
                self._look(room)
            else:
                self._written, self._while_roomy = {}, {}
            free = room + self._capacity.least_free_disk
            await asyncio.sleep(min(max(free / _FASTEST, _SHORTEST_LOOK_S), _LONGEST_LOOK_S))

    def _look(self, room: int) -> None:
        runners = {sandbox: runner for runner in self._runners for sandbox in runner.running()}
        on_their_way = {sandbox: sandbox.cgroup.unwritten() for sandbox in runners}
        written = {sandbox: on_their_way[sandbox] + self._size(sandbox) for sandbox in runners}
        write_rate = _write_rate(self._written, written).values()
        self._written = written
        # The next check may be late; by then the same amount may have been written again.
        if room > sum(on_their_way.values()) + 2 * sum(write_rate):
            self._while_roomy = written
            return
        grown = _write_rate(self._while_roomy, written)
        writers = {sandbox for sandbox in written if grown[sandbox] >= MIB}
        for sandbox in writers - self._stopping.keys():
            self._begin_stop(sandbox, runners[sandbox])

    def _begin_stop(self, sandbox: Sandbox, runner: Runner) -> None:
        """Stop in the background: a slow stop must not delay the check of other writers."""
        task = asyncio.create_task(_stop(sandbox.id, runner))
        self._stopping[sandbox] = task
        task.add_done_callback(lambda _: self._stopping.pop(sandbox))

    def _size(self, sandbox: Sandbox) -> int:
        """Measure the disk usage of the sandbox's disk and its volumes."""
        size = 0
        for image in self._images(sandbox.record):
            with suppress(FileNotFoundError):  # it is being deleted
                size += image.stat().st_blocks * _BLOCK
        return size


def _write_rate(before: dict[Sandbox, int], now: dict[Sandbox, int]) -> dict[Sandbox, int]:
    return {one: max(0, size - before.setdefault(one, size)) for one, size in now.items()}


async def _stop(sandbox_id: str, runner: Runner) -> None:
    try:
        await runner.pause_if_running(sandbox_id, REASON)
    except (EngineError, OSError) as error:
        log.error("stopping a sandbox that fills the disk failed", id=sandbox_id, error=error)
    else:
        log.warning("disk nearly full, writer stopped", id=sandbox_id)
