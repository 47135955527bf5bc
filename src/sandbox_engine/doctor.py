import asyncio
import os
import platform
import re
import resource
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox_engine.container import cgroup_controllers, cgroups, memory_reclaim
from sandbox_engine.machine import resources, restrictions
from sandbox_engine.machine.resources import MIB
from sandbox_engine.machine.restrictions import Restrictions
from sandbox_engine.network.conflicts import find_conflicts
from sandbox_engine.network.kernel import conntrack
from sandbox_engine.network.naming import link_prefix
from sandbox_engine.system.settings import Settings
from sandbox_engine.system.subprocesses import Completed

_PACKAGES = {
    "catatonit": "catatonit",
    "nft": "nftables",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
}
_PACKAGES_FOR_REGISTRIES = {"skopeo": "skopeo", "umoci": "umoci"}
# Image builds need FOWNER, FSETID, SETPCAP and SETFCAP, loop devices MKNOD, DNS on port 53
# NET_BIND_SERVICE. Measured for the others: without them the engine or its sandboxes fail.
_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_MKNOD": 27,
    "CAP_SETFCAP": 31,
}
_LEAST_KERNEL = (5, 13)  # overlay mounts and user namespaces, used as the engine does
_LEAST_INOTIFY_WATCHES = 65_536
_LEAST_PTYS = 1024
_LEAST_CONNTRACK = 65_536
_LEAST_OPEN_FILES = 16_384


@dataclass(frozen=True)
class Finding:
    """Result of checking one requirement, with the fix if it is not met."""

    name: str
    good: bool
    detail: str
    fix: str = ""
    required: bool = True


def examine(settings: Settings) -> Iterator[Finding]:
    """Check all requirements of this machine."""
    linux = sys.platform == "linux"
    yield Finding(
        "operating system", linux, platform.platform(),
        "The engine runs on Linux. On other systems run it in a Linux virtual machine, or point "
        "E2B_API_URL at an engine on a Linux machine.",
    )  # fmt: skip
    if linux:
        yield _root()
        yield _kernel()
        yield from _programs(settings)
        yield from _registry_programs()
        yield from _kernel_features()
        yield _control_groups()
        yield from _inherited()
        yield from _limits()
        yield _memory_room(settings)
        yield _disk_room(settings)
        yield _memory_reclaim()
        if os.geteuid() == 0:
            yield _connection_table()
        if os.geteuid() == 0 and shutil.which("nft"):
            yield _host_firewall(settings)


def examine_keeper(settings: Settings) -> Iterator[Finding]:
    """Check the restrictions that sandboxes inherit from a running keeper."""
    for pid in _keepers(settings.instance_run_dir / "keeper"):
        inherited = Restrictions.of(pid)
        filters, unprivileged = inherited.seccomp_filters, inherited.no_new_privileges
        yield Finding(
            "running keeper", not filters and not unprivileged,
            f"process {pid}, {filters} seccomp filters" + ", no_new_privs" * unprivileged,
            "Sandboxes inherit them. Restart the engine without them (see the findings above); "
            "delete running sandboxes first.",
        )  # fmt: skip


def missing(settings: Settings) -> list[Finding]:
    """List the requirements that are not met."""
    return [finding for finding in examine(settings) if finding.required and not finding.good]


def _root() -> Finding:
    return Finding(
        "root", os.geteuid() == 0, f"user id {os.geteuid()}",
        "Start it with sudo (or `make run`, which uses it): namespaces and mounts need root.",
    )  # fmt: skip


def _kernel() -> Finding:
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    return Finding(
        "kernel", found >= _LEAST_KERNEL, platform.release(),
        f"Use kernel {_LEAST_KERNEL[0]}.{_LEAST_KERNEL[1]} or later.",
    )  # fmt: skip


def _programs(settings: Settings) -> Iterator[Finding]:
    for program, package in ({settings.runtime: settings.runtime} | _PACKAGES).items():
        path = shutil.which(program)
        yield Finding(
            program, path is not None, path or "not found",
            f"Install it: apt-get install {package}",
        )  # fmt: skip


def _registry_programs() -> Iterator[Finding]:
    for program, package in _PACKAGES_FOR_REGISTRIES.items():
        path = shutil.which(program)
        yield Finding(
            program, path is not None, path or "not found",
            f"To build from registry images: apt-get install {package}", required=False,
        )  # fmt: skip


def _kernel_features() -> Iterator[Finding]:
    filesystems = Path("/proc/filesystems").read_text().split()
    yield Finding(
        "overlayfs", "overlay" in filesystems or _has_module("overlay"), "in the kernel",
        "Load it: modprobe overlay",
    )  # fmt: skip
    limit = _number("/proc/sys/user/max_user_namespaces")
    yield Finding(
        "user namespaces", limit > 0, f"at most {limit}",
        "Allow them: sysctl -w user.max_user_namespaces=65536",
    )  # fmt: skip
    loop = Path("/dev/loop-control").exists() or _has_module("loop")
    yield Finding(
        "loop devices", loop, "/dev/loop-control",
        "Load the module: modprobe loop (in a container: run it privileged). Loop devices enforce "
        "the disk limit of each sandbox.",
    )  # fmt: skip


def _control_groups() -> Finding:
    version = "v2" if cgroups.is_unified() else "v1"
    obstacle = cgroup_controllers.find_obstacle()
    return Finding(
        "control groups", obstacle is None,
        f"{version}: {obstacle.problem}" if obstacle else version, obstacle.fix if obstacle else "",
    )  # fmt: skip


def _inherited() -> Iterator[Finding]:
    """Check restrictions of the engine's process that sandboxes inherit."""
    inherited = Restrictions.of_this_process()
    yield Finding(
        "seccomp filters", inherited.seccomp_filters == 0,
        f"{inherited.seccomp_filters} inherited" if inherited.seccomp_filters else "none inherited",
        "Sandboxes inherit them: some programs fail, and each system call takes longer. In the engine's "
        "systemd unit remove SystemCallFilter, SystemCallArchitectures, LockPersonality, "
        "MemoryDenyWriteExecute, Restrict*, Protect* and PrivateDevices; run its container privileged.",
        required=False,  # LXC sets one that does not affect sandboxes
    )  # fmt: skip
    yield Finding(
        "new privileges", not inherited.no_new_privileges,
        "denied (no_new_privs)" if inherited.no_new_privileges else "allowed",
        "sudo does not work in sandboxes. In the engine's systemd unit remove NoNewPrivileges and "
        "DynamicUser; run its container privileged, without no-new-privileges.",
    )  # fmt: skip
    lacking = [name for name, number in _CAPABILITIES.items() if inherited.lacks(number)]
    yield Finding(
        "capabilities", not lacking,
        f"not in the bounding set: {', '.join(lacking)}" if lacking else "as needed",
        "In the engine's systemd unit remove CapabilityBoundingSet; run its container privileged.",
    )  # fmt: skip
    if os.geteuid() == 0 and not inherited.lacks(_CAPABILITIES["CAP_SYS_ADMIN"]):
        possible = restrictions.can_set_hostname()
        yield Finding(
            "host name of sandboxes", possible,
            "can be set" if possible else "cannot be set (sethostname)",
            "Sandboxes cannot be started. In the engine's systemd unit remove ProtectHostname; run its "
            "container privileged.",
        )  # fmt: skip


def _keepers(run_dir: Path) -> Iterator[int]:
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = cmdline.read_text(errors="replace").split("\0")
            if "sandbox_engine.keeper.process" in words and str(run_dir) in words:
                yield int(cmdline.parent.name)


def _limits() -> Iterator[Finding]:
    yield from (
        _at_least("inotify watches", "fs/inotify/max_user_watches", _LEAST_INOTIFY_WATCHES),
        _at_least("pseudo terminals", "kernel/pty/max", _LEAST_PTYS),
        _at_least("tracked connections", "net/netfilter/nf_conntrack_max", _LEAST_CONNTRACK),
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield Finding(
        "open files", hard == resource.RLIM_INFINITY or hard >= _LEAST_OPEN_FILES, f"at most {hard}",
        f"Raise it: ulimit -Hn {_LEAST_OPEN_FILES * 4}", required=False,
    )  # fmt: skip


def _connection_table() -> Finding:
    return Finding(
        "table of connections", conntrack.is_there(), "not available",
        "Sandboxes with a network policy cannot be started without it: modprobe "
        "nf_conntrack_netlink", required=False,
    )  # fmt: skip


def _memory_room(settings: Settings) -> Finding:
    free = resources.memory().available // MIB
    return Finding(
        "free memory", free >= settings.min_free_memory_mb, f"{free} MiB",
        "No sandbox is started before more memory is free: end programs on this machine, or lower "
        f"--min-free-memory-mb ({settings.min_free_memory_mb}).", required=False,
    )  # fmt: skip


def _disk_room(settings: Settings) -> Finding:
    directory = settings.state_dir
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = resources.free_disk(there) // MIB
    return Finding(
        "free disk", free >= settings.min_free_disk_mb, f"{free} MiB for {directory}",
        "No sandbox is started or resumed before more disk is free: delete files there, choose another "
        f"--state-dir, or lower --min-free-disk-mb ({settings.min_free_disk_mb}).", required=False,
    )  # fmt: skip


def _memory_reclaim() -> Finding:
    possible = memory_reclaim.is_possible()
    return Finding(
        "memory of paused sandboxes", possible,
        "moves to swap" if possible else "stays in RAM: this machine has no swap for it",
        "Add compressed swap in memory: modprobe zram && zramctl --find --size 8G (prints the "
        "device) && mkswap /dev/zram0 && swapon /dev/zram0; or on disk: fallocate -l 8G /swapfile "
        "&& chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile. With cgroup v2 the kernel "
        "must be 5.19 or later.", required=False,
    )  # fmt: skip


def _host_firewall(settings: Settings) -> Finding:
    conflicts = asyncio.run(find_conflicts(_run, links=link_prefix(settings.instance)))
    return Finding(
        "host firewall", not conflicts, "; ".join(conflicts) or "passes traffic of sandboxes",
        "Insert the rules listed above.", required=False,
    )  # fmt: skip


async def _run(argv: Sequence[str], *, stdin: bytes = b"") -> Completed:
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate(stdin)
    return Completed(process.returncode or 0, out, err)


def _at_least(name: str, setting: str, least: int) -> Finding:
    path = f"/proc/sys/{setting}"
    if not Path(path).exists():
        return Finding(name, good=True, detail="not available yet", required=False)
    found = _number(path)
    key = setting.replace("/", ".")
    return Finding(
        name, found >= least, str(found),
        f"Raise it: sysctl -w {key}={least}", required=False,
    )  # fmt: skip


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0


def _has_module(name: str) -> bool:
    modules = Path("/lib/modules") / platform.release()
    return Path(f"/sys/module/{name}").exists() or any(modules.rglob(f"{name}.ko*"))
