import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from sandbox_engine.capacity import Capacity
from sandbox_engine.engine import Engine
from sandbox_engine.errors import EngineError
from sandbox_engine.log import get_logger
from sandbox_engine.machine import MIB
from sandbox_engine.records import SandboxRecord
from sandbox_engine.sandbox import Sandbox

log = get_logger(__name__)

REASON = "paused: the machine's disk is nearly full"

_AMPLE = 8192 * MIB
_FASTEST = 8192 * MIB  # a second; more than a sandbox writes even into free memory
_LONGEST_LOOK_S, _SHORTEST_LOOK_S = 0.25, 0.02
_BLOCK = 512

Images = Callable[[SandboxRecord], Iterable[Path]]


class DiskGuard:
    """Pauses the sandboxes that write before the machine's disk is full.

    Their disks are sparse files and together may grow to more than there is. One that found no
    room any more would lose what its sandbox believes to have written.
    """

    def __init__(self, engine: Engine, capacity: Capacity, *, images: Images) -> None:
        self._engine = engine
        self._capacity = capacity
        self._images = images
        self._written: dict[str, int] = {}
        self._pausing: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watch until cancelled, the more closely the less there is."""
        while True:
            room = self._capacity.disk_room()
            if room < _AMPLE:
                self._look(room)
            else:
                self._written.clear()
            free = room + self._capacity.least_free_disk
            await asyncio.sleep(min(max(free / _FASTEST, _SHORTEST_LOOK_S), _LONGEST_LOOK_S))

    def _look(self, room: int) -> None:
        sandboxes = list(self._engine.running())
        on_their_way = {one.id: one.cgroup.unwritten() for one in sandboxes}
        written = {one.id: on_their_way[one.id] + self._size(one) for one in sandboxes}
        growth = {one: written[one] - self._written.get(one, written[one]) for one in written}
        self._written = written
        # The next look may come late, and by then they have written as much again.
        soon = sum(on_their_way.values()) + 2 * sum(max(0, grown) for grown in growth.values())
        if room <= soon:
            writers = {one for one, grown in growth.items() if grown >= MIB}
            for sandbox_id in writers - self._pausing.keys():
                self._begin_pause(sandbox_id)

    def _begin_pause(self, sandbox_id: str) -> None:
        """Pause in the background: one that takes its time must not hide what others write."""
        task = asyncio.create_task(self._pause(sandbox_id))
        self._pausing[sandbox_id] = task
        task.add_done_callback(lambda _: self._pausing.pop(sandbox_id))

    async def _pause(self, sandbox_id: str) -> None:
        try:
            await self._engine.put_to_rest(sandbox_id, REASON)
        except (EngineError, OSError) as error:
            log.error("a sandbox that fills the disk was not paused", id=sandbox_id, error=error)
        else:
            log.warning("disk nearly full, writer paused", id=sandbox_id)

    def _size(self, sandbox: Sandbox) -> int:
        """Measure what the sandbox's disk, and the volumes it has, take of the machine's."""
        size = 0
        for image in self._images(sandbox.record):
            with suppress(FileNotFoundError):  # it is just being deleted
                size += image.stat().st_blocks * _BLOCK
        return size
