"""Enables the controllers that limit sandboxes in the parent of their control groups.

With cgroup v2 a group passes controllers to its children only if it contains no processes; the root
of the machine is the exception. A container with its own cgroup namespace starts with all its
processes in its root, so the engine first moves them into a child.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox_engine.container import cgroups
from sandbox_engine.system.errors import CannotRun
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

NEEDED = frozenset({"memory", "cpu", "pids"})
_NEEDED_V1 = NEEDED | {"cpuacct", "freezer"}
_CHILD = "init"
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class Obstacle:
    """A reason why sandboxes cannot be limited, with the fix for the operator."""

    problem: str
    fix: str


@dataclass(frozen=True)
class RootGroup:
    """The cgroup v2 group mounted on /sys/fs/cgroup."""

    available: frozenset[str]
    enabled: frozenset[str]
    kind: str | None  # None: the root of the machine, which has no type
    has_processes: bool
    is_own: bool  # this process is in it, or in the child created by `enable`
    is_writable: bool

    @classmethod
    def read(cls, directory: Path, *, pid: int) -> Self:
        type_file = directory / "cgroup.type"
        kind = type_file.read_text().strip() if type_file.exists() else None
        processes = _words(directory / "cgroup.procs") if kind == "domain" else frozenset()
        moved = directory / _CHILD / "cgroup.procs"
        return cls(
            available=_words(directory / "cgroup.controllers"),
            enabled=_words(directory / "cgroup.subtree_control"),
            kind=kind,
            has_processes=bool(processes),
            is_own=str(pid) in processes | (_words(moved) if moved.exists() else frozenset()),
            is_writable=os.access(directory / "cgroup.subtree_control", os.W_OK),
        )

    @property
    def lacking(self) -> frozenset[str]:
        return NEEDED - self.enabled

    @property
    def must_be_vacated(self) -> bool:
        """Return whether processes in the group keep it from passing on controllers."""
        return bool(self.lacking) and self.kind == "domain" and self.has_processes

    def obstacle(self) -> Obstacle | None:
        """Find why the engine cannot enable the missing controllers."""
        if not self.lacking:
            return None
        if absent := NEEDED - self.available:
            return _absent(absent, of_machine=self.kind is None)
        if not self.is_writable:
            return Obstacle(
                f"{_names(self.lacking)} not enabled, and /sys/fs/cgroup is read-only",
                "Run the engine's container privileged.",
            )
        if self.kind not in (None, "domain"):
            return Obstacle(
                f"{_names(self.lacking)} not enabled, and /sys/fs/cgroup is of type {self.kind!r}",
                "Recreate the engine's container: the group keeps this type until it is removed.",
            )
        if self.must_be_vacated and not self.is_own:
            return Obstacle(
                f"{_names(self.lacking)} not enabled, and the processes in /sys/fs/cgroup do not belong "
                "to the engine's container",
                "Run the engine in a container with a cgroup namespace of its own "
                "(docker run --cgroupns=private).",
            )
        return None


def find_obstacle(directory: Path = cgroups.ROOT) -> Obstacle | None:
    """Find why sandboxes cannot be limited on this machine."""
    if (directory / "cgroup.controllers").exists():
        return RootGroup.read(directory, pid=os.getpid()).obstacle()
    lacking = {name for name in _NEEDED_V1 if not (directory / name).is_dir()}
    return _absent(lacking, of_machine=True) if lacking else None


def enable() -> None:
    """Enable the controllers for sandboxes in their parent groups."""
    if not cgroups.is_unified():
        return
    root = RootGroup.read(cgroups.ROOT, pid=os.getpid())
    if obstacle := root.obstacle():
        raise CannotRun(f"{obstacle.problem}. {obstacle.fix}")
    if not root.lacking:
        return
    try:
        if root.must_be_vacated:
            _vacate(cgroups.ROOT)
        enabling = " ".join(f"+{name}" for name in sorted(root.lacking))
        (cgroups.ROOT / "cgroup.subtree_control").write_text(enabling)
    except OSError as error:
        raise CannotRun(
            f"cannot enable the controllers {_names(root.lacking)} in {cgroups.ROOT}: {error}"
        ) from error
    log.info("enabled controllers", controllers=enabling)


def _vacate(directory: Path) -> None:
    """Move all processes of the group into a child group."""
    child = directory / _CHILD
    child.mkdir(exist_ok=True)
    for _ in range(_MOST_ROUNDS):  # a process may fork before it is moved
        pids = (directory / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            if pid != "0":  # in another pid namespace; writing 0 would move this process
                with suppress(ProcessLookupError):
                    (child / "cgroup.procs").write_text(pid)


def _absent(controllers: Iterable[str], *, of_machine: bool) -> Obstacle:
    if not of_machine:
        return Obstacle(
            f"{_names(controllers)} not available in this container",
            "Enable them for this container on the host: each parent's cgroup.subtree_control must "
            "list them.",
        )
    return Obstacle(
        f"{_names(controllers)} not available",
        "Enable them on the kernel's command line and reboot: remove cgroup_disable=…; on Raspberry "
        "Pi OS add cgroup_enable=memory. With cgroup v1 mount them below /sys/fs/cgroup.",
    )


def _names(controllers: Iterable[str]) -> str:
    return ", ".join(sorted(controllers))


def _words(path: Path) -> frozenset[str]:
    return frozenset(path.read_text().split())
