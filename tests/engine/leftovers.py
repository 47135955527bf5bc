"""Counts what an engine leaves in the kernel and on the disk."""

import asyncio
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox_engine.container import cgroups
from sandbox_engine.system.settings import Settings
from tests.engine.polling import until


class EngineState(Protocol):
    """An engine as the kernel and the disk know it, whether it runs or not."""

    @property
    def state_dir(self) -> Path: ...

    @property
    def instance(self) -> str: ...


@dataclass(frozen=True)
class EngineAt:
    """The engine of a state directory, whoever starts it."""

    state_dir: Path

    @property
    def instance(self) -> str:
        return Settings(state_dir=self.state_dir).instance


def count(engine: EngineState) -> Counter[str]:
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


def of_sandboxes(engine: EngineState) -> dict[str, int]:
    """Count what there is one of for each sandbox, and nothing that is made ahead."""
    counted = count(engine)
    names = ("loops", "cgroups", "directories", "roots", "containers")
    return {name: counted[name] for name in names}


async def settled(engine: EngineState) -> Counter[str]:
    """Count once the pool is full again and nothing is on its way out."""
    counts: list[Counter[str]] = []

    async def is_stable() -> bool:
        counts.append(await asyncio.to_thread(count, engine))
        return counts[-2:-1] == counts[-1:]

    await until(is_stable, timeout=60, pause=0.5)
    return counts[-1]


async def back_to(engine: EngineState, before: Counter[str]) -> None:
    """Wait until no more is there than before; the kernel lets go of disks when it has the time."""

    async def is_back() -> bool:
        return await asyncio.to_thread(count, engine) <= before

    try:
        await until(is_back, timeout=60, pause=0.5)
    except TimeoutError:
        assert count(engine) == before


def processes(engine: EngineState) -> list[str]:
    """List the command lines of the engine's own processes: itself, its keeper, what builds its images."""
    words = (str(engine.state_dir), f"/run/sandbox-engine/{engine.instance}")
    lines = [_command_line(directory) for directory in Path("/proc").glob("[0-9]*")]
    return [line for line in lines if any(word in line for word in words)]


async def nothing(engine: EngineState) -> None:
    """Wait until the engine, its keeper and all that was made for its sandboxes are gone."""

    async def is_gone() -> bool:
        return not await asyncio.to_thread(_left, engine)

    try:
        await until(is_gone, timeout=30, pause=0.2)
    except TimeoutError:
        left = _left(engine)
        assert left == [], left  # pytest explains assertions of tests only


def _left(engine: EngineState) -> list[str]:
    run_dir = Path("/run/sandbox-engine") / engine.instance
    counted = [f"{name}: {number}" for name, number in count(engine).items() if number]
    return [*processes(engine), *counted, *map(str, run_dir.glob("*"))]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


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
