from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")

_V1_CONTROLLERS = (
    "memory", "cpu", "cpuacct", "cpuset", "pids", "devices", "freezer", "blkio", "hugetlb",
    "net_cls", "net_prio", "perf_event", "systemd", "rdma", "misc", "unified",
)  # fmt: skip


def is_unified() -> bool:
    """Return whether cgroup v2 is in use; the hybrid layout counts as v1."""
    return (ROOT / "cgroup.controllers").exists()


@dataclass(frozen=True)
class CgroupUsage:
    cpu_seconds: float
    memory_used: int
    memory_cache: int


@dataclass(frozen=True)
class Cgroup:
    """The control group of a sandbox; `path` is relative to the hierarchies' roots."""

    path: str

    def usage(self) -> CgroupUsage:
        """Measure CPU and memory usage; zero if the group is gone."""
        try:
            return self._usage_v2() if is_unified() else self._usage_v1()
        except OSError:
            return CgroupUsage(0.0, 0, 0)

    def oom_kills(self) -> int:
        """Count processes killed by the OOM killer in this group."""
        name = "memory.events" if is_unified() else "memory.oom_control"
        try:
            return _keyed(self._file("memory", name)).get("oom_kill", 0)
        except OSError:
            return 0

    def swapped(self) -> int:
        """Measure the swapped memory of the group; zero if the group is gone."""
        try:
            if is_unified():
                return int(self._file("memory", "memory.swap.current").read_text())
            return _keyed(self._file("memory", "memory.stat")).get("total_swap", 0)
        except OSError:
            return 0

    def unwritten(self) -> int:
        """Measure dirty and writeback pages of the group; zero if the group is gone."""
        prefix = "file" if is_unified() else "total"
        try:
            stat = _keyed(self._file("memory", "memory.stat"))
        except OSError:
            return 0
        return stat.get(f"{prefix}_dirty", 0) + stat.get(f"{prefix}_writeback", 0)

    def allow_swap(self, *, allowed: bool) -> None:
        """Allow swapping where the memory limit does not include swap."""
        if is_unified():
            with suppress(OSError):  # the kernel lacks the option, or the group is gone
                self._file("memory", "memory.swap.max").write_text("max" if allowed else "0")

    def limit_sockets(self, limit: int) -> None:
        """Limit socket buffers where the memory limit does not include them."""
        if not is_unified():
            with suppress(OSError):  # the kernel lacks the option
                self._file("memory", "memory.kmem.tcp.limit_in_bytes").write_text(str(limit))

    def directory(self, controller: str) -> Path:
        """Return the group's directory in the hierarchy of this controller."""
        return (ROOT if is_unified() else ROOT / controller) / self.path

    def _usage_v2(self) -> CgroupUsage:
        stat = _keyed(self._file("memory", "memory.stat"))
        cpu = _keyed(self._file("cpu", "cpu.stat"))
        current = int(self._file("memory", "memory.current").read_text())
        cache = stat.get("file", 0)
        return CgroupUsage(cpu.get("usage_usec", 0) / 1e6, max(0, current - cache), cache)

    def _usage_v1(self) -> CgroupUsage:
        stat = _keyed(self._file("memory", "memory.stat"))
        cpu = int(self._file("cpuacct", "cpuacct.usage").read_text())
        current = int(self._file("memory", "memory.usage_in_bytes").read_text())
        cache = stat.get("total_cache", 0)
        return CgroupUsage(cpu / 1e9, max(0, current - cache), cache)

    def _file(self, controller: str, name: str) -> Path:
        return self.directory(controller) / name


def children(parent: str) -> set[str]:
    """List the groups below `parent` in all hierarchies."""
    return {
        child.name
        for hierarchy in _hierarchies()
        if (hierarchy / parent).is_dir()
        for child in (hierarchy / parent).iterdir()
        if child.is_dir()
    }


def remove(path: str) -> None:
    """Remove an empty group and its children from every hierarchy."""
    for hierarchy in _hierarchies():
        top = hierarchy / path
        if not top.is_dir():
            continue
        below = [child for child in top.rglob("*") if child.is_dir()]
        for group in [*reversed(below), top]:
            with suppress(OSError):  # a process in it is exiting; the next sweep removes the group
                group.rmdir()


def processes(path: str) -> set[int]:
    """List the processes in the group and its children."""
    return {
        int(pid)
        for hierarchy in _hierarchies()
        if (hierarchy / path).is_dir()
        for procs in (hierarchy / path).rglob("cgroup.procs")
        for pid in procs.read_text().split()
    }


def _hierarchies() -> list[Path]:
    if is_unified():
        return [ROOT]
    return [ROOT / name for name in _V1_CONTROLLERS if (ROOT / name).is_dir()]


def _keyed(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}  # noqa: PLR2004
