"""What an attacker brings along: system calls by their numbers, as a program for a sandbox."""

import json
from typing import Any

from e2b import AsyncSandbox

from tests.engine.output_collector import Heard

_PATH = "/tmp/attack.py"

_PROGRAM = '''
import ctypes, errno, json, os, platform, signal, sys

CLONE = {
    "NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000,
    "NEWUSER": 0x10000000, "NEWPID": 0x20000000, "NEWNET": 0x40000000,
}
# x86_64, aarch64; what came after 5.1 has the same number everywhere
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_settime": (227, 112),
    "clone": (56, 220), "clone3": (435, 435), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsopen": (430, 430),
    "fsmount": (432, 432), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "kexec_load": (246, 104), "keyctl": (250, 219), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "pivot_root": (155, 41),
    "personality": (135, 92), "quotactl": (179, 60), "reboot": (169, 142),
    "request_key": (249, 218), "setns": (308, 268), "settimeofday": (170, 170),
    "socket": (41, 198), "socketpair": (53, 199), "swapon": (167, 224), "syslog": (103, 116),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282),
}
libc = ctypes.CDLL(None, use_errno=True)


def raw(number, *arguments):
    """Make a system call; tell the name of its error, or OK."""
    ctypes.set_errno(0)
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "OK"


def call(name, *arguments):
    return raw(NUMBERS[name][platform.machine() == "aarch64"], *arguments)


def spellings(value):
    """Give the 64-bit arguments that the kernel reads as the same 32-bit `value`."""
    return [high << 32 | value for high in (0, 1, 1 << 31, 0xFFFFFFFF)]


def in_child(act):
    """Do it in a process of its own; tell what it answered, or the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(act()).encode())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 4096).decode()
    _, status = os.waitpid(child, 0)
    return signal.Signals(status).name if os.WIFSIGNALED(status) else answer


def attempt(act):
    """Do it; tell the name of its error, or OK."""
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "OK"

'''


async def attack(
    sandbox: AsyncSandbox, script: str, *, hold: bool = False, user: str = "root"
) -> Any:
    """Run a Python script in the sandbox, as root by default, and return its variable `answer`.

    With `hold` it goes on afterwards and keeps what it has.
    """
    ending = "signal.pause()" if hold else ""
    await sandbox.files.write(
        _PATH, f"{_PROGRAM}{script}\nprint(json.dumps(answer), flush=True)\n{ending}\n"
    )
    heard = Heard()
    command = await sandbox.commands.run(
        f"exec python3 {_PATH}", user=user, background=True, on_stdout=heard
    )
    if hold:
        await heard.wait_for(b"\n")
    else:
        await command.wait()
    return json.loads(heard.data)
