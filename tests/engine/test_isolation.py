import asyncio
import json
import os
import secrets
import stat
from pathlib import Path

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    SandboxException,
    SandboxState,
)

from sandbox_engine import cgroups
from sandbox_engine.runtime.bundle import ID_COUNT, UID_BASE
from tests.engine.attack import attack
from tests.engine.waiting import until

pytestmark = pytest.mark.needs_engine

# Docker's default set, which is the widest that is usual.
DOCKER_CAPABILITIES = 0xA80425FB
HARMLESS_DEVICES = {"full", "null", "ptmx", "random", "tty", "urandom", "zero"}


@pytest.fixture
def secret(engine):
    """Put a file on the host that no sandbox may ever read."""
    path = engine.state_dir / "secret"
    path.write_text(secrets.token_hex(16))
    yield path
    path.unlink()


@pytest.fixture
async def neighbour(options):
    """Create the sandbox next door."""
    async with await AsyncSandbox.create(timeout=120, **options) as sandbox:
        yield sandbox


# Files


async def test_no_path_leads_to_the_host_s_files(sandbox, secret):
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


async def test_leaving_a_chroot_ends_at_the_sandbox_s_own_root(sandbox, secret):
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


async def test_a_command_inherits_nothing_open_from_the_host(shared):
    script = "import os, json; print(json.dumps([os.readlink(f'/proc/self/fd/{n}') for n in map(int, os.listdir('/proc/self/fd')) if os.path.exists(f'/proc/self/fd/{n}')]))"
    seen = json.loads((await shared.commands.run(f'exec python3 -c "{script}"')).stdout)
    assert len(seen) == 3
    assert seen[0] == "/dev/null"
    assert all(one.startswith("pipe:") for one in seen[1:])


async def test_a_directory_that_is_a_descriptor_of_the_runtime_is_no_way_out(sandbox):
    await sandbox.commands.run(
        "for n in $(seq 0 20); do ln -s /proc/self/fd/$n fd$n; done; ln -s /proc/1/root up"
    )
    ways = [f"/proc/self/fd/{number}" for number in range(20)]
    ways += [f"fd{number}" for number in range(20)]
    for cwd in [*ways, "/proc/1/cwd", "/proc/thread-self/cwd", "up"]:
        with pytest.raises(InvalidArgumentException):
            await sandbox.commands.run("ls ../../../../..", cwd=cwd)


async def test_what_a_sandbox_leaves_on_the_host_gives_nobody_there_any_privilege(sandbox, engine):
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


async def test_device_nodes_can_neither_be_made_nor_used(sandbox):
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


async def test_the_kernel_s_settings_cannot_be_changed(sandbox):
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


async def test_what_the_kernel_tells_of_the_host_is_covered(sandbox):
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


async def test_a_sandbox_s_control_groups_show_only_itself_and_cannot_be_changed(sandbox):
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


# System calls


async def test_nothing_can_be_mounted_or_unmounted(sandbox):
    answer = await attack(
        sandbox,
        """
MS_BIND, MS_REMOUNT, MS_MOVE = 4096, 32, 8192
os.makedirs("/tmp/at", exist_ok=True)
answer = {
    kind: call("mount", kind.encode(), b"/tmp/at", kind.encode(), 0, None)
    for kind in ("proc", "sysfs", "tmpfs", "overlay", "cgroup", "cgroup2", "devpts", "mqueue", "fuse", "debugfs")
}
answer |= {
    "bind": call("mount", b"/proc", b"/tmp/at", None, MS_BIND, None),
    "remount": call("mount", None, b"/proc/sys", None, MS_BIND | MS_REMOUNT, None),
    "move": call("mount", b"/proc", b"/tmp/at", None, MS_MOVE, None),
    "unmount": call("umount2", b"/proc/sys", 2),
    "fsopen": call("fsopen", b"tmpfs", 0),
    "fsmount": call("fsmount", 3, 0, 0),
    "open_tree": call("open_tree", -100, b"/", 1),
    "move_mount": call("move_mount", -100, b"/proc", -100, b"/tmp/at", 0),
    "mount_setattr": call("mount_setattr", -100, b"/proc/sys", 0, bytes(32), 32),
    "pivot_root": call("pivot_root", b"/tmp", b"/tmp/at"),
}
""",
    )
    assert {name: error for name, error in answer.items() if error != "EPERM"} == {}
    for user in ("user", "root"):
        with pytest.raises(CommandExitException, match="permission denied"):
            await sandbox.commands.run("sudo mount -t tmpfs none /mnt", user=user)


async def test_no_namespace_can_be_made_or_entered(sandbox):
    answer = await attack(
        sandbox,
        """
answer = {"unshare " + name: in_child(lambda: call("unshare", flag)) for name, flag in CLONE.items()}
answer |= {
    "clone " + name: in_child(lambda: call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0))
    for name, flag in CLONE.items()
}
answer |= {
    "setns " + kind: call("setns", os.open(f"/proc/1/ns/{kind}", os.O_RDONLY), 0)
    for kind in ("mnt", "pid", "net", "user", "uts", "ipc", "cgroup")
}
answer["setns pidfd"] = call("setns", os.pidfd_open(1), CLONE["NEWNS"])
answer["clone3"] = call("clone3", bytes(88), 88)
""",
    )
    assert answer.pop("clone3") == "ENOSYS"
    assert {name: error for name, error in answer.items() if error not in {"EPERM", "ENOSYS"}} == {}
    with pytest.raises(CommandExitException, match="Operation not permitted"):
        await sandbox.commands.run("unshare --user --map-root-user true")


async def test_the_kernel_is_not_administered_from_inside(sandbox):
    answer = await attack(
        sandbox,
        """
some = ctypes.create_string_buffer(256)
handle = ctypes.create_string_buffer(8 + 128)
answer = {
    "init_module": call("init_module", some, 256, b""),
    "finit_module": call("finit_module", 0, b"", 0),
    "delete_module": call("delete_module", b"overlay", 0),
    "kexec_load": call("kexec_load", 0, 0, None, 0),
    "reboot": call("reboot", 0xfee1dead, 672274793, 0, None),
    "swapon": call("swapon", b"/tmp/x", 0),
    "acct": call("acct", b"/tmp/x"),
    "quotactl": call("quotactl", 0x800001 << 8, b"/", 0, None),
    "syslog": call("syslog", 5, None, 0),
    "settimeofday": call("settimeofday", bytes(16), None),
    "clock_settime": call("clock_settime", 0, bytes(16)),
    "bpf": call("bpf", 0, some, 128),
    "perf_event_open": call("perf_event_open", some, 0, -1, -1, 0),
    "keyctl": call("keyctl", 0, -3, 1),
    "add_key": call("add_key", b"user", b"name", b"x", 1, -3),
    "request_key": call("request_key", b"user", b"name", None, 0),
    "open_by_handle_at": call("open_by_handle_at", -100, handle, 0),
    "userfaultfd": call("userfaultfd", 0),
    "io_uring_setup": call("io_uring_setup", 1, some),
    "fanotify_init": call("fanotify_init", 0, 0),
}
""",
    )
    assert {name: error for name, error in answer.items() if error != "EPERM"} == {}


async def test_system_calls_of_another_architecture_are_no_way_around(sandbox):
    answer = await attack(
        sandbox,
        r"""
import mmap
X32 = 0x40000000
def getpid_of_32_bits():
    # mov eax, 20; int 0x80; ret
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)() == os.getpid()
answer = ["SIGSYS", "SIGSYS"]
if platform.machine() == "x86_64":
    answer = [in_child(lambda: raw(X32 + 39)), in_child(getpid_of_32_bits)]
""",
    )
    assert set(answer) <= {"SIGSYS", "SIGSEGV", "ENOSYS", "False"}


async def test_no_process_of_the_host_can_be_seen_or_touched(sandbox, engine):
    answer = await attack(
        sandbox,
        f"""
PTRACE_ATTACH = 16
pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
commands = [open(f"/proc/{{pid}}/cmdline").read().replace("\\0", " ").strip() for pid in pids]
answer = [
    commands[0].split(), len(pids), os.stat("/proc/1").st_uid,
    attempt(lambda: os.kill({engine.pid}, 0)),
    attempt(lambda: os.pidfd_open({engine.pid})),
    attempt(lambda: os.kill(1, signal.SIGKILL)), len(os.listdir("/proc/1/fd")) >= 0,
]
""",
    )
    init, count, owner, killed, opened, self_kill, _ = answer
    assert init == ["/.init", "-P"]
    assert count < 5
    assert owner == 0
    assert (killed, opened) == ("ESRCH", "ESRCH")
    assert self_kill == "OK"  # and is ignored: it still runs
    assert await sandbox.is_running()


# Privileges


async def test_root_inside_is_nobody_outside(sandbox, engine):
    await sandbox.commands.run("exec sleep 600", background=True, user="root")
    await sandbox.commands.run("exec sudo sleep 600", background=True)
    await until(lambda: _runs(sandbox, "sudo sleep 600"))
    pids = cgroups.processes(f"sandbox-engine-{engine.instance}/{sandbox.sandbox_id}")
    assert len(pids) >= 4
    for pid in pids:
        status = _status(pid)
        ids = {*status["Uid"].split(), *status["Gid"].split(), *status["Groups"].split()}
        assert all(UID_BASE <= int(one) < UID_BASE + ID_COUNT for one in ids)
        assert status["Seccomp"] == "2"
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) & ~DOCKER_CAPABILITIES == 0
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            assert _namespace(pid, kind) != _namespace("self", kind)


async def test_limits_and_priorities_cannot_be_raised(sandbox):
    answer = await attack(
        sandbox,
        """
import resource
def raise_limit(kind):
    soft, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (hard * 2, hard * 2))
    except ValueError:
        return "EPERM"
    return "OK"
def write(path, text):
    os.write(os.open(path, os.O_WRONLY), text)
answer = {
    "files": raise_limit(resource.RLIMIT_NOFILE),
    "locked memory": raise_limit(resource.RLIMIT_MEMLOCK),
    "nice": attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)),
    "realtime": attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
    "out of memory": attempt(lambda: write("/proc/self/oom_score_adj", b"-1000")),
}
""",
    )
    assert set(answer.values()) <= {"EPERM", "EACCES"}


async def test_the_network_cannot_be_configured_from_inside(sandbox):
    before = (await sandbox.commands.run("ip -o addr; ip -o route")).stdout
    commands = (
        "ip link set lo down", "ip link set eth0 down", "ip addr add 10.0.0.1/8 dev eth0",
        "ip route add default via 10.0.0.1", "ip link add test type dummy",
        "ip link set eth0 address 02:00:00:00:00:01", "ip link del eth0",
        "ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:02 dev eth0", "ip link set eth0 netns 1",
    )  # fmt: skip
    for command in commands:
        with pytest.raises(CommandExitException):
            await sandbox.commands.run(command, user="root")
    assert (await sandbox.commands.run("ip -o addr; ip -o route")).stdout == before
    answer = await attack(
        sandbox,
        """
import socket
SO_RCVBUFFORCE = 33
answer = [
    attempt(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 30)),
    open("/proc/net/unix").read().count("@"),
]
""",
    )
    assert answer == ["EPERM", 0]


async def test_sockets_are_of_the_usual_families_only(sandbox):
    answer = await attack(
        sandbox,
        """
import socket
NETLINK_ROUTE, NETLINK_USERSOCK, NETLINK_SOCK_DIAG = 0, 2, 4
NETLINK, PACKET = 16, 17
kinds = [(family, socket.SOCK_DGRAM, 0) for family in range(64) if family not in (NETLINK, PACKET)]
kinds += [(NETLINK, socket.SOCK_RAW, protocol) for protocol in range(5)]
kinds += [(PACKET, socket.SOCK_RAW, 0), (socket.AF_INET, socket.SOCK_RAW, 1)]
answer = [kind for kind in kinds if attempt(lambda: socket.socket(*kind)) == "OK"]
""",
    )
    unix, inet, inet6, netlink = 1, 2, 10, 16
    assert [unix, 2, 0] in answer
    assert {family for family, _, _ in answer} == {unix, inet, inet6, netlink}
    assert [netlink, 3, 0] in answer
    assert [netlink, 3, 2] not in answer


# Neighbours


async def test_a_neighbour_s_processes_memory_and_files_cannot_be_seen(sandbox, neighbour, engine):
    await neighbour.commands.run("exec -a next-door sleep 600", background=True)
    await attack(
        neighbour,
        """
answer = libc.shmget(4711, 4096, 0o1666) >= 0
open("/dev/shm/next-door", "w").write("x")
""",
    )
    answer = await attack(
        sandbox,
        f"""
texts = [open(f"/proc/{{pid}}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit()]
texts += [open("/proc/self/mountinfo").read(), open("/proc/self/cgroup").read()]
answer = [
    any("next-door" in text or {neighbour.sandbox_id!r} in text for text in texts),
    libc.shmget(4711, 0, 0) >= 0, os.path.exists("/dev/shm/next-door"),
]
""",
    )
    assert answer == [False, False, False]


async def test_a_neighbour_cannot_be_reached_over_the_network(sandbox, neighbour):
    await neighbour.commands.run("python3 -m http.server 8000", background=True)
    await until(lambda: _listens(neighbour, 8000))
    address = (await neighbour.commands.run("hostname -I")).stdout.split()[0]
    answer = await attack(
        sandbox,
        f"""
import socket
try:
    socket.create_connection(({address!r}, 8000), 1)
    answer = "connected"
except OSError as error:
    answer = "no way"
""",
    )
    assert answer == "no way"


# What the sandbox says of itself


@pytest.mark.parametrize(
    "entry",
    [
        "evil:x:70000:70000::/:/bin/bash",
        "evil:x:4294967295:0::/:/bin/bash",
        "evil:x:99999999999999999999:0::/:/bin/bash",
        "evil:x:-1:-1::/:/bin/bash",
        "evil:x:0x0:0::/:/bin/bash",
        "evil:x::::/bin/bash",
        "evil",
    ],
)
async def test_an_account_that_makes_no_sense_is_refused(shared, entry):
    await shared.commands.run(
        f"cp /etc/passwd /etc/passwd.bak && echo {entry} >> /etc/passwd", user="root"
    )
    try:
        with pytest.raises((AuthenticationException, InvalidArgumentException)):
            await shared.commands.run("id", user="evil")
    finally:
        await shared.commands.run("mv /etc/passwd.bak /etc/passwd", user="root")
    assert (await shared.commands.run("id -un")).stdout == "user\n"


@pytest.mark.parametrize(
    "replace",
    [
        "rm /etc/passwd",
        "rm /etc/passwd && mkfifo /etc/passwd",
        "rm /etc/passwd && mkdir /etc/passwd",
        "ln -sf /dev/zero /etc/passwd",
        "ln -sf /proc/kmsg /etc/passwd",
        "rm /etc/passwd && ln -s passwd /etc/passwd",
        "truncate -s 8G /etc/passwd",
        "head -c 1M /dev/urandom > /etc/passwd",
    ],
)
async def test_an_account_file_that_is_none_harms_nobody(sandbox, neighbour, replace):
    await sandbox.commands.run(replace, user="root")
    async with asyncio.timeout(10):
        with pytest.raises((AuthenticationException, InvalidArgumentException)):
            await sandbox.commands.run("true", user="user")
        assert (await neighbour.commands.run("echo well")).stdout == "well\n"


async def test_root_can_end_the_sandbox_but_not_its_files(sandbox):
    await sandbox.files.write("kept", "on disk")
    with pytest.raises(SandboxException):
        await sandbox.commands.run("kill -TERM 1; sleep 600", user="root")
    await until(lambda: _is_paused(sandbox))
    await sandbox.connect(timeout=60)
    assert await sandbox.files.read("kept") == "on disk"


async def _is_paused(sandbox):
    return (await sandbox.get_info()).state is SandboxState.PAUSED


async def _runs(sandbox, command):
    return command in (await sandbox.commands.run("ps -eo args")).stdout.splitlines()


async def _listens(sandbox, port):
    table = await sandbox.commands.run("cat /proc/net/tcp")
    return f":{port:04X} 00000000:0000 0A" in table.stdout


def _host_text(path):
    try:
        return Path(path).read_text()
    except OSError:
        return None


def _status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _namespace(pid, kind):
    return Path(f"/proc/{pid}/ns/{kind}").readlink()
