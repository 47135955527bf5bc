"""Counts what an engine leaves in the kernel and on the disk."""

import asyncio
import subprocess
from collections import Counter
from pathlib import Path

from sandbox_engine import cgroups
from tests.engine.process import EngineProcess
from tests.engine.waiting import until


def count(engine: EngineProcess) -> Counter[str]:
    """Count everything that belongs to sandboxes of this engine."""
    instance = engine.instance
    return Counter(
        mounts=_lines_with("/proc/self/mountinfo", str(engine.state_dir), instance),
        loops=_loops(engine.state_dir),
        namespaces=_entries(Path("/run/sandbox-engine") / instance / "netns"),
        interfaces=len(list(Path("/sys/class/net").glob(f"sb{instance}*"))),
        cgroups=len(cgroups.children(f"sandbox-engine-{instance}")),
        directories=_entries(engine.state_dir / "sandboxes"),
        snapshots=_entries(engine.state_dir / "snapshots"),
        roots=_entries(Path("/run/sandbox-engine") / instance / "roots"),
        containers=_entries(Path("/run/sandbox-engine") / instance / "runtime"),
        commands=_entries(Path("/run/sandbox-engine") / instance / "keeper" / "commands"),
        rules=_firewall(instance).count(f"sb{instance}"),
    )


def of_sandboxes(engine: EngineProcess) -> dict[str, int]:
    """Count what there is one of for each sandbox, and nothing that is made ahead."""
    counted = count(engine)
    names = ("loops", "cgroups", "directories", "roots", "containers")
    return {name: counted[name] for name in names}


async def settled(engine: EngineProcess) -> Counter[str]:
    """Count once the pool is full again and nothing is on its way out."""
    counts: list[Counter[str]] = []

    async def is_stable() -> bool:
        counts.append(await asyncio.to_thread(count, engine))
        return counts[-2:-1] == counts[-1:]

    await until(is_stable, timeout=60, pause=0.5)
    return counts[-1]


async def back_to(engine: EngineProcess, before: Counter[str]) -> None:
    """Wait until no more is there than before; the kernel lets go of disks when it has the time."""

    async def is_back() -> bool:
        return await asyncio.to_thread(count, engine) <= before

    try:
        await until(is_back, timeout=60, pause=0.5)
    except TimeoutError:
        assert count(engine) == before


def _lines_with(path: str, *words: str) -> int:
    lines = Path(path).read_text().splitlines()
    return sum(any(word in line for word in words) for line in lines)


def _entries(directory: Path) -> int:
    return len(list(directory.iterdir())) if directory.is_dir() else 0


def _loops(state_dir: Path) -> int:
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(str(state_dir) in line for line in listed.stdout.splitlines())


def _firewall(instance: str) -> str:
    table = ["inet", f"sandbox_engine_{instance}"]
    listed = subprocess.run(
        ["nft", "list", "table", *table], capture_output=True, text=True, check=False
    )
    return listed.stdout
