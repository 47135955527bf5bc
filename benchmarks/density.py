import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

from e2b import AsyncSandbox

from benchmarks.engine import started_engine
from benchmarks.report import Figure
from benchmarks.timing import timed

_SANDBOXES = 100
_MEMORY_SAMPLES = 5


async def density() -> AsyncIterator[Figure]:
    """Measure concurrent creates, and the cost of idle sandboxes."""
    before = await _memory_in_use()
    async with started_engine() as engine:
        elapsed, outcomes = await timed(
            asyncio.gather(*(engine.create() for _ in range(_SANDBOXES)), return_exceptions=True)
        )
        sandboxes = [outcome for outcome in outcomes if isinstance(outcome, AsyncSandbox)]
        failures = _SANDBOXES - len(sandboxes)
        yield Figure(f"{_SANDBOXES} creates at once, failures", failures, "", target=0)
        yield Figure(f"{_SANDBOXES} creates at once, all of them", elapsed / 1000, "s")
        each = (await _memory_in_use() - before) / len(sandboxes) / 1e6
        yield Figure(f"memory per idle sandbox at {_SANDBOXES}", each, "MB", target=4)
        await asyncio.gather(*(sandbox.kill() for sandbox in sandboxes))


async def _memory_in_use() -> float:
    """Measure the machine's used memory without this process's own.

    Counts all of it: the engine, its keeper, the sandboxes, and the kernel's share of each.
    """
    samples = []
    for _ in range(_MEMORY_SAMPLES):
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        await asyncio.sleep(1)
        info = _kilobytes("/proc/meminfo")
        own = _kilobytes("/proc/self/smaps_rollup")["Pss"]
        samples.append((info["MemTotal"] - info["MemAvailable"] - own) * 1024)
    return median(samples)


def _kilobytes(path: str) -> dict[str, int]:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return {name: int(value.split()[0]) for name, _, value in lines if value.endswith(" kB")}
