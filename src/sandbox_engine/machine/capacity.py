from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_engine.machine import resources
from sandbox_engine.machine.resources import MIB
from sandbox_engine.system.errors import EngineError

# What bringing up a container takes before it shows in the machine's figures.
START_MEMORY = 16 * MIB
START_DISK = 16 * MIB


class MachineFull(EngineError):
    """The machine has no room for what was asked for."""

    code = "machine_full"


class Capacity:
    """Refuses work that the machine's memory or disk has no room for.

    Those who start at the same time count one another, since none of them is in the figures yet.
    """

    def __init__(self, state_dir: Path, *, min_free_memory: int, min_free_disk: int) -> None:
        self._state_dir = state_dir
        self._min_free_memory = min_free_memory
        self._min_free_disk = min_free_disk
        self._reserved_memory = 0
        self._reserved_disk = 0

    @contextmanager
    def reserve(self, *, memory: int = 0, disk: int = 0) -> Iterator[None]:
        """Hold this much until it is in use, or refuse; of what is 0 any amount will do."""
        if memory:
            self._require_memory(memory)
        if disk:
            self._require_disk(disk)
        self._reserved_memory += memory
        self._reserved_disk += disk
        try:
            yield
        finally:
            self._reserved_memory -= memory
            self._reserved_disk -= disk

    @property
    def least_free_disk(self) -> int:
        """What of the disk no sandbox that runs may take: half of what new ones must leave."""
        return self._min_free_disk // 2

    def disk_room(self) -> int:
        """Tell how much sandboxes that run may still write."""
        return max(0, resources.free_disk(self._state_dir) - self.least_free_disk)

    def _require_memory(self, needed: int) -> None:
        free = resources.memory().available - self._reserved_memory
        if free - needed < self._min_free_memory:
            raise MachineFull(
                f"The machine is out of memory for another sandbox: {free // MIB} MiB are free, "
                f"and {self._min_free_memory // MIB} MiB stay free (--min-free-memory-mb). "
                "Kill or pause sandboxes, or end other programs on it."
            )

    def _require_disk(self, needed: int) -> None:
        free = resources.free_disk(self._state_dir) - self._reserved_disk
        if free - needed < self._min_free_disk:
            raise MachineFull(
                f"The machine's disk is nearly full: {free // MIB} MiB are free where "
                f"{self._state_dir} is, and {self._min_free_disk // MIB} MiB stay free "
                "(--min-free-disk-mb). Kill sandboxes, delete what is not needed there, or "
                "give it more room."
            )
