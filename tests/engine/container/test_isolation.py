import json
import os
import secrets
import stat
from pathlib import Path

import pytest
from e2b import CommandExitException, InvalidArgumentException, SandboxException

from sandbox_engine.rootfs.ownership import UID_BASE
from tests.engine.syscall_attack import attack

pytestmark = pytest.mark.needs_engine

HARMLESS_DEVICES = {"full", "null", "ptmx", "random", "tty", "urandom", "zero"}


@pytest.fixture
def secret(engine):
    """Put a file on the host that no sandbox may ever read."""
    path = engine.state_dir / "secret"
    path.write_text(secrets.token_hex(16))
    yield path
    path.unlink()


# Files


async def test_isolation__no_path_leads_to_host_files(sandbox, secret):
    prefixes = (
        "", "/..", "/../../../../../..", "/proc/1/root", "/proc/1/root/..", "/proc/self/root",
        "/proc/1/cwd", "/proc/1/cwd/../..", "/proc/self/cwd/../../../..", "/proc/1/task/1/root",
        "/dev/../..", "/dev/fd/../../..", "/.init/..", "/sys/..", "/sys/devices/system/cpu/../../../..",
    )  # fmt: skip
    found = await attack(
        sandbox,
        f"answer = [path for path in {[f'{prefix}{secret}' for prefix in prefixes]!r} "
        "if os.path.lexists(path)]",
    )
    assert found == []
    await sandbox.commands.run(f"ln -s {secret} link; ln -s /proc/1/root/..{secret} another")
    for name in ("link", "another"):
        with pytest.raises(SandboxException):
            await sandbox.files.read(name)
        with pytest.raises(CommandExitException):
            await sandbox.commands.run(f"cat {name}", user="root")


async def test_isolation__chroot_escape_ends_at_the_sandbox_root(sandbox, secret):
    answer = await attack(
        sandbox,
        f"""
outside = os.open("/", os.O_RDONLY)
os.makedirs("/tmp/jail", exist_ok=True)
os.chroot("/tmp/jail")
os.fchdir(outside)
for _ in range(100):
    os.chdir("..")
os.chroot(".")
answer = [open("/etc/hostname").read(), os.path.exists({str(secret)!r})]
""",
    )
    assert answer == ["e2b.local\n", False]


async def test_isolation__command_inherits_no_open_host_files(shared):
    script = "import os, json; print(json.dumps([os.readlink(f'/proc/self/fd/{n}') for n in map(int, os.listdir('/proc/self/fd')) if os.path.exists(f'/proc/self/fd/{n}')]))"
    seen = json.loads((await shared.commands.run(f'exec python3 -c "{script}"')).stdout)
    assert len(seen) == 3
    assert seen[0] == "/dev/null"
    assert all(one.startswith("pipe:") for one in seen[1:])


async def test_isolation__working_directory_on_a_runtime_descriptor_is_no_escape(sandbox):
    await sandbox.commands.run(
        "for n in $(seq 0 20); do ln -s /proc/self/fd/$n fd$n; done; ln -s /proc/1/root up"
    )
    ways = [f"/proc/self/fd/{number}" for number in range(20)]
    ways += [f"fd{number}" for number in range(20)]
    for cwd in [*ways, "/proc/1/cwd", "/proc/thread-self/cwd", "up"]:
        with pytest.raises(InvalidArgumentException):
            await sandbox.commands.run("ls ../../../../..", cwd=cwd)


async def test_isolation__files_left_on_the_host_grant_no_privileges(sandbox, engine):
    await sandbox.commands.run("cp /bin/bash /tmp/shell; chmod 6755 /tmp/shell", user="root")
    directory = engine.state_dir / "sandboxes" / sandbox.sandbox_id
    found = (directory / "disk/upper/tmp/shell").stat()
    assert stat.S_IMODE(found.st_mode) == 0o6755
    assert found.st_uid == UID_BASE
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    flags = os.statvfs(directory / "disk").f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV


# Devices, /proc and /sys


async def test_isolation__device_nodes_can_neither_be_made_nor_used(sandbox):
    answer = await attack(
        sandbox,
        """
def make(kind, major, minor):
    return attempt(lambda: os.mknod("/tmp/node", kind | 0o666, os.makedev(major, minor)))
answer = {
    "memory": make(0o020000, 1, 1), "loop": make(0o060000, 7, 0), "disk": make(0o060000, 8, 0),
    "virtual disk": make(0o060000, 254, 0), "kernel log": make(0o020000, 1, 11),
    "loop control": make(0o020000, 10, 237), "fuse": make(0o020000, 10, 229),
}
""",
    )
    assert set(answer.values()) == {"EPERM"}
    listed = await sandbox.commands.run("find /dev -type c -o -type b", user="root")
    names = {path.removeprefix("/dev/") for path in listed.stdout.split()}
    assert names - {"pts/ptmx"} <= HARMLESS_DEVICES | {name for name in names if "pts/" in name}


async def test_isolation__the_kernel_s_settings_cannot_be_changed(sandbox):
    paths = [
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/panic", "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/file-max", "/proc/sys/fs/suid_dumpable",
        "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces",
        "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper",
        "/sys/power/state", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/release_agent",
        "/sys/devices/system/cpu/cpu1/online",
    ]  # fmt: skip
    before = [_host_text(path) for path in paths]
    answer = await attack(
        sandbox,
        f"""
def write(path):
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, b"1")
answer = {{path: attempt(lambda: write(path)) for path in {paths!r}}}
""",
    )
    answer.pop("/proc/sysrq-trigger")  # covered by a null device, which takes anything
    assert set(answer.values()) <= {"EROFS", "EACCES", "EPERM", "ENOENT"}
    assert [_host_text(path) for path in paths] == before


async def test_isolation__host_details_in_proc_are_masked(sandbox):
    covered = [
        "/proc/kcore",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/kallsyms",
        "/proc/interrupts",
    ]
    answer = await attack(
        sandbox,
        f"""
def read(path):
    try:
        return open(path, "rb").read(100).decode(errors="replace")
    except OSError as error:
        return ""
answer = [
    [read(path) for path in {covered!r}],
    sorted(os.listdir("/sys")), os.listdir("/proc/acpi") if os.path.exists("/proc/acpi") else [],
    in_child(lambda: call("syslog", 3, ctypes.create_string_buffer(100), 100)),
]
""",
    )
    assert answer == [[""] * len(covered), ["devices", "fs"], [], "EPERM"]


async def test_isolation__a_sandbox_s_control_groups_show_only_itself_and_cannot_be_changed(
    sandbox,
):
    answer = await attack(
        sandbox,
        """
tops = [os.path.join("/sys/fs/cgroup", name) for name in os.listdir("/sys/fs/cgroup")]
tops = [top for top in tops if os.path.isdir(top)] + ["/sys/fs/cgroup"]
groups = {line.rpartition(":")[2].strip() for line in open("/proc/self/cgroup")}
def write(path, text):
    os.write(os.open(path, os.O_WRONLY), text)
limits = ["memory/memory.limit_in_bytes", "pids/pids.max", "memory.max", "pids.max", "cpu.max"]
answer = [
    sorted(groups),
    sorted({attempt(lambda: os.mkdir(top + "/mine")) for top in tops}),
    sorted({attempt(lambda: write(top + "/cgroup.procs", b"1")) for top in tops[:-1]}),
    sorted({attempt(lambda: write("/sys/fs/cgroup/" + path, b"max")) for path in limits}),
    sorted(name for top in tops for name in os.listdir(top) if "sandbox" in name),
]
""",
    )
    groups, made, moved, limits, others = answer
    assert groups == ["/"]
    assert set(made) <= {"EROFS", "EEXIST", "EACCES", "OK"}
    assert set(moved) <= {"EROFS", "EACCES"}
    assert set(limits) <= {"EROFS", "EACCES", "ENOENT"}
    assert others == []


def _host_text(path):
    try:
        return Path(path).read_text()
    except OSError:
        return None
