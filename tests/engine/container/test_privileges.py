from pathlib import Path

import pytest
from e2b import CommandExitException

from sandbox_engine.container import cgroups
from sandbox_engine.rootfs.ownership import ID_COUNT, UID_BASE
from tests.engine.polling import until
from tests.engine.syscall_attack import attack

pytestmark = pytest.mark.needs_engine

# Docker's default set, which is the widest that is usual.
DOCKER_CAPABILITIES = 0xA80425FB

# One of each kind of socket, as getaddrinfo, asyncio, ping and libudev use them.
SOCKETS = """
import asyncio, multiprocessing, socket, struct

NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC = 0, 15, 16

async def answer(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def main():
    for host in ("127.0.0.1", "::1"):
        server = await asyncio.start_server(answer, host, 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"echo\\n")
        assert await reader.read() == b"echo\\n"
        writer.close()
        server.close()
    process = await asyncio.create_subprocess_exec("true")
    assert await process.wait() == 0

def ping(family, protocol, echo_request, host):
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as pinger:
        pinger.settimeout(10)
        pinger.sendto(struct.pack("!BBHHH", echo_request, 0, 0, 0, 1), (host, 0))
        pinger.recv(64)

asyncio.run(main())
socket.getaddrinfo("localhost", 80)
socket.if_nameindex()
ping(socket.AF_INET, socket.IPPROTO_ICMP, 8, "127.0.0.1")
ping(socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, "::1")
for protocol in (NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol).bind((0, 0))
one, other = multiprocessing.Pipe()
one.send("through a pair")
assert other.recv() == "through a pair"
"""
SOCKETS_OF_NODE = """
const net = require("net"), os = require("os");
if (!os.networkInterfaces().eth0) throw new Error("no interface");
const server = net.createServer((connection) => connection.end());
server.listen(0, "127.0.0.1", () => {
  const client = net.connect(server.address().port, "127.0.0.1");
  client.on("close", () => server.close()).resume();
});
"""


# System calls


async def test_privileges__nothing_can_be_mounted_or_unmounted(sandbox):
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


async def test_privileges__no_namespace_can_be_made_or_entered(sandbox):
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


async def test_privileges__kernel_administration_is_denied(sandbox):
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


async def test_privileges__foreign_architecture_syscalls_are_denied(sandbox):
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


async def test_privileges__host_processes_are_hidden(sandbox, engine):
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


async def test_privileges__root_inside_is_unprivileged_outside(sandbox, engine):
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


async def test_privileges__limits_and_priorities_cannot_be_raised(sandbox):
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


async def test_privileges__the_network_cannot_be_configured_from_inside(sandbox):
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


async def test_privileges__only_common_socket_families_are_allowed(sandbox):
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


@pytest.mark.parametrize("user", ["root", "user"])
async def test_privileges__high_argument_bits_open_no_other_sockets(sandbox, user):
    answer = await attack(
        sandbox,
        """
DGRAM, RAW, NETLINK = 2, 3, 16

def opened(name, *arguments):
    answer = call(name, *arguments)
    return answer in ("OK", "EPERM", "EACCES")  # the last two are the kernel's, past the filter

answer = {
    "families": sorted({
        family for family in range(64) for kind in (1, DGRAM, RAW)
        for spelled in spellings(family) if opened("socket", spelled, kind, 0)
    }),
    "pairs": sorted({
        family for family in range(64) for kind in (1, DGRAM, 5)
        for spelled in spellings(family)
        if call("socketpair", spelled, kind, 0, bytes(8)) not in ("ENOSYS", "EAFNOSUPPORT")
    }),
    "netlink": sorted({
        protocol for protocol in range(64) for kind in (DGRAM, RAW)
        for family in spellings(NETLINK) for spelled in spellings(protocol)
        if opened("socket", family, kind, spelled)
    }),
    "refusals": sorted({
        call("socket", family, RAW, spelled)
        for protocol in range(1, 32) if protocol not in (4, 15, 16)
        for family in spellings(NETLINK) for spelled in spellings(protocol)
    }),
}
""",
        user=user,
    )
    unix, inet, inet6, netlink = 1, 2, 10, 16
    route, sock_diag, uevent, generic = 0, 4, 15, 16
    assert answer["families"] == [unix, inet, inet6, netlink]
    assert answer["pairs"] == [unix]
    assert answer["netlink"] == [route, sock_diag, uevent, generic]
    # As by a kernel without them: useradd and passwd give up on any other error of audit sockets.
    assert answer["refusals"] == ["EPROTONOSUPPORT"]


@pytest.mark.parametrize("user", ["root", "user"])
async def test_privileges__high_argument_bits_bypass_no_rule(sandbox, user):
    answer = await attack(
        sandbox,
        """
LINUX32, ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC = 0x8, 0x40000, 0x400000
answer = {
    "clone": sorted({
        in_child(lambda: call("clone", spelled, 0, 0, 0, 0))
        for flag in CLONE.values() for spelled in spellings(flag | signal.SIGCHLD)
    }),
    "refused": sorted({
        in_child(lambda: call("personality", spelled))
        for persona in (ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, LINUX32 | READ_IMPLIES_EXEC)
        for spelled in spellings(persona)
    }),
    "taken": sorted({
        in_child(lambda: call("personality", spelled))
        for persona in (0, LINUX32, 0xFFFFFFFF) for spelled in spellings(persona)
    }),
}
""",
        user=user,
    )
    assert answer == {"clone": ["ENOSYS"], "refused": ["ENOSYS"], "taken": ["OK"]}


@pytest.mark.parametrize("user", ["root", "user"])
async def test_privileges__ordinary_programs_get_their_sockets(sandbox, user):
    await sandbox.files.write("/tmp/sockets.py", SOCKETS)
    await sandbox.files.write("/tmp/sockets.js", SOCKETS_OF_NODE)
    commands = (
        "python3 /tmp/sockets.py",
        "ip -o addr | grep -q eth0 && ip -o route | grep -q default",
        "ss --tcp --udp --listening && ss --family=unix",
        "getent ahosts localhost",
        "setarch i686 uname --machine | grep -q i686",
        "sudo useradd another && sudo usermod --comment x another && sudo passwd --delete another",
        "node /tmp/sockets.js",
    )
    for command in commands:
        await sandbox.commands.run(command, user=user)


async def _runs(sandbox, command):
    return command in (await sandbox.commands.run("ps -eo args")).stdout.splitlines()


def _status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _namespace(pid, kind):
    return Path(f"/proc/{pid}/ns/{kind}").readlink()
