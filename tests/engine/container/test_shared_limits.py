"""What the kernel has only so much of for everyone: no sandbox gets hold of another one's part."""

import os
from pathlib import Path

import pytest
from e2b import AsyncSandbox, PtySize

from sandbox_engine.system import syscalls
from tests.engine.engine_process import running_engine
from tests.engine.output_collector import Heard
from tests.engine.syscall_attack import attack

pytestmark = pytest.mark.needs_engine

MEMORY_MB = 128
PAGES_PER_MIB = 256

# Takes all it gets of what the kernel counts by user, and keeps it.
HOARD = """
import mmap

def take(act, most):
    held = []
    try:
        while len(held) < most:
            held.append(act())
    except OSError:
        pass
    return held

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result

def queue_of_messages():
    name = b"/" + os.urandom(8).hex().encode()
    return checked(realtime.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None))

def locked_memory():
    page = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    checked(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(1 << 20)))
    return page

realtime = ctypes.CDLL("librt.so.1", use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
hoard = {
    "inotify": take(lambda: checked(libc.inotify_init1(0)), 5000),
    "signals": take(lambda: checked(libc.sigqueue(os.getpid(), signal.SIGRTMIN, None)), 200000),
    "messages": take(queue_of_messages, 200),
    "locked": take(locked_memory, 100),
}
answer = {name: len(held) for name, held in hoard.items()}
"""

SOCKETS = """
import socket
full = []
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(2000):
    full.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    full[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    full[-1].bind(("127.0.0.1", 0))
    for _ in range(8):
        sender.sendto(bytes(50000), full[-1].getsockname())
answer = len(full)
"""


async def test_shared_limits__per_user_limits_apply_per_sandbox(sandbox, neighbour):
    await attack(sandbox, HOARD, hold=True)
    taken = await attack(neighbour, HOARD)
    assert taken["inotify"] >= 100
    assert taken["signals"] >= 1000
    assert taken["messages"] >= 5
    assert taken["locked"] >= 4
    watched = await sandbox.files.watch_dir("/tmp", on_event=lambda _: None)
    await watched.stop()
    os.close(syscalls.inotify_init())  # the host's own


async def test_shared_limits__one_sandbox_cannot_exhaust_terminals(sandbox, neighbour):
    held = await attack(
        sandbox,
        """
held = []
try:
    while True:
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError as error:
    answer = [len(held), errno.errorcode[error.errno]]
""",
        hold=True,
    )
    assert held == [256, "ENOSPC"]
    for _ in range(3):
        terminal = await neighbour.pty.create(PtySize(24, 80), on_data=(heard := Heard()))
        await neighbour.pty.send_stdin(terminal.pid, b"echo ge''ts one\n")
        await heard.wait_for(b"gets one\r\n")
        await terminal.kill()


async def test_shared_limits__socket_buffers_count_towards_the_memory_limit():
    with running_engine("--memory-mb", str(MEMORY_MB)) as engine:
        async with await AsyncSandbox.create(timeout=60, **engine.options) as sandbox:
            before = _pages_in_sockets()
            assert await attack(sandbox, SOCKETS, hold=True) == 2000
            assert (_pages_in_sockets() - before) / PAGES_PER_MIB < 1.2 * MEMORY_MB
            assert (await sandbox.commands.run("echo usable")).stdout == "usable\n"


def _pages_in_sockets():
    udp = next(
        line for line in Path("/proc/net/sockstat").read_text().splitlines() if "UDP:" in line
    )
    return int(udp.split()[-1])
