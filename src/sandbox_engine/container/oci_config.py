"""Builds the OCI runtime's config.json for a sandbox: pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_engine.container.seccomp import SECCOMP
from sandbox_engine.rootfs.ownership import ID_COUNT, UID_BASE
from sandbox_engine.system.settings import Resources

HOSTNAME = "e2b.local"
INIT_PATH = "/.init"

# Docker's default set; valid in the sandbox's own user namespace only.
CAPABILITIES = [
    "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
    "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
    "CAP_SETUID", "CAP_SYS_CHROOT",
]  # fmt: skip

_CPU_PERIOD_US = 100_000
_OOM_SCORE = 100  # under memory pressure the kernel kills sandboxes before the engine

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the sandbox's own

_MASKED_PATHS = [
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys",
    "/proc/kmsg", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo",
    "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo",
]  # fmt: skip
_READONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/sys"]


@dataclass(frozen=True)
class ContainerSpec:
    """Parameters of a sandbox's container."""

    root: str
    userns: str
    netns: str
    cgroup: str
    init: str
    resources: Resources


@dataclass(frozen=True)
class ProcessUser:
    uid: int
    gid: int
    groups: Sequence[int] = ()


def config(spec: ContainerSpec) -> dict[str, Any]:
    """Describe the container: namespaces, id mappings, limits, and an init that reaps processes."""
    return {
        "ociVersion": "1.0.2",
        "process": process(
            args=[INIT_PATH, "-P"], env={"PATH": "/usr/bin:/bin"}, cwd="/", user=ProcessUser(0, 0)
        ),
        "root": {"path": spec.root, "readonly": False},
        "hostname": HOSTNAME,
        "mounts": _mounts(spec),
        "linux": {
            "namespaces": [
                # Created before the container, as the owner of its network namespace: the runtime's
                # exec joins the user namespace first and cannot join a foreign network namespace
                # after that.
                {"type": "user", "path": spec.userns},
                {"type": "pid"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "mount"},
                {"type": "cgroup"},
                {"type": "network", "path": spec.netns},
            ],
            "uidMappings": [_id_mapping()],
            "gidMappings": [_id_mapping()],
            "cgroupsPath": f"/{spec.cgroup}",
            "resources": _limits(spec.resources),
            "maskedPaths": _MASKED_PATHS,
            "readonlyPaths": _READONLY_PATHS,
            "seccomp": SECCOMP,
        },
    }


def process(
    *,
    args: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    user: ProcessUser,
    terminal: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Describe a process in the container; `terminal` is its size in rows and columns."""
    spec: dict[str, Any] = {
        "terminal": terminal is not None,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
        "args": list(args),
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": cwd,
        "capabilities": _capabilities(root=user.uid == 0),
        "noNewPrivileges": False,
        "oomScoreAdj": _OOM_SCORE,
    }
    if terminal is not None:
        spec["consoleSize"] = {"height": terminal[0], "width": terminal[1]}
    return spec


def _capabilities(*, root: bool) -> dict[str, list[str]]:
    held = CAPABILITIES if root else []
    return {"bounding": CAPABILITIES, "permitted": held, "effective": held}


def _id_mapping() -> dict[str, int]:
    return {"containerID": 0, "hostID": UID_BASE, "size": ID_COUNT}


def _limits(resources: Resources) -> dict[str, Any]:
    memory = resources.memory_mb << 20
    return {
        "memory": {"limit": memory, "swap": memory},
        "cpu": {"quota": resources.cpu_count * _CPU_PERIOD_US, "period": _CPU_PERIOD_US},
        "pids": {"limit": resources.pids},
    }


def _mounts(spec: ContainerSpec) -> list[dict[str, Any]]:
    half_memory = (spec.resources.memory_mb << 20) // 2
    return [
        _mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount(
            "/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666",
            "mode=0620", "gid=5", "max=256",
        ),
        _mount(_SHARED_MEMORY, "tmpfs", "shm", "nosuid", "nodev", "mode=1777", f"size={half_memory}"),
        _mount("/dev/mqueue", "mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        # All of /sys would expose the host's devices and the neighbours' control groups. Programs
        # need only these to size themselves.
        _mount("/sys", "tmpfs", "sysfs", "nosuid", "noexec", "nodev", "mode=755", "size=64k"),
        # A user namespace must keep all restrictions of the host's mount; most hosts set this one.
        _bind("/sys/devices/system/cpu", "noexec"),
        _mount("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro"),
        _bind(spec.init, destination=INIT_PATH),
    ]  # fmt: skip


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _bind(source: str, *more: str, destination: str | None = None) -> dict[str, Any]:
    return _mount(destination or source, "bind", source, "bind", "ro", "nosuid", "nodev", *more)
