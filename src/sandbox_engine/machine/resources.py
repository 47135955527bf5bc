"""Free memory and disk of this machine."""

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Memory:
    """The machine's memory in bytes."""

    available: int
    swap_total: int
    swap_free: int
    unwritten: int  # dirty and writeback pages


def memory() -> Memory:
    """Measure the memory; takes 30 microseconds."""
    facts: dict[str, int] = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        facts[name] = int(value.split()[0]) << 10
    return Memory(
        available=facts["MemAvailable"],
        swap_total=facts["SwapTotal"],
        swap_free=facts["SwapFree"],
        unwritten=facts["Dirty"] + facts["Writeback"],
    )


def free_disk(directory: Path) -> int:
    """Return the free space of the directory's file system for unprivileged users."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
