from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_engine.machine import resources
from sandbox_engine.machine.resources import MIB
from sandbox_engine.system.errors import EngineError

# Memory and disk of a starting container that the machine's figures do not show yet.
START_MEMORY = 16 * MIB
START_DISK = 16 * MIB


class MachineFull(EngineError):
    """The machine lacks memory or disk for the request."""

    code = "machine_full"


class Capacity:
    """Refuses work when the machine is short of memory or disk.

    Concurrent starts count each other's reservations, since the figures do not include them yet.
    """

    def __init__(self, state_dir: Path, *, min_free_memory: int, min_free_disk: int) -> None:
        self._state_dir = state_dir
        self._min_free_memory = min_free_memory
        self._min_free_disk = min_free_disk
        self._reserved_memory = 0
        self._reserved_disk = 0

    @contextmanager
    def reserve(self, *, memory: int = 0, disk: int = 0) -> Iterator[None]:
        """Reserve memory and disk until they are in use, or raise; 0 requires nothing."""
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
        """Disk space that running sandboxes may not use: half of what new ones must leave."""
        return self._min_free_disk // 2

    def disk_room(self) -> int:
        """Return how much running sandboxes may still write."""
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
                f"The machine's disk is nearly full: {free // MIB} MiB are free in "
                f"{self._state_dir}, and {self._min_free_disk // MIB} MiB stay free "
                "(--min-free-disk-mb). Kill sandboxes, delete other files there, or "
                "add disk space."
            )
