import contextlib
import fcntl
import os
import sys
import termios
from pathlib import Path

from sandbox_engine.commands import (
    Ended,
)
from tests.engine.bare_container import (
    descriptors,
    eventually,
    follow_to_end,
    keeper_pid,
)

MIB = 1 << 20
FINE = Ended(0, exited=True, status="exit status 0", error=None)
KILLED = Ended(-1, exited=False, status="signal: killed", error="signal: killed")


async def rest(command):
    """Read what of a command's output is still to come, up to its good end."""
    outputs, ended = await follow_to_end(command.follow())
    assert ended == FINE
    return b"".join(output.data for output in outputs)


async def processes_gone(container, text):
    """Wait until no process of the container has this text in its command line."""
    await eventually(lambda: not any(text in line for line in command_lines(container)))


def command_lines(container):
    init = (container.directory / "init.pid").read_text()
    namespace = Path(f"/proc/{init}/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it is gone, or not to be looked into
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                yield (entry / "cmdline").read_bytes()


def waiting_in_pipe(command):
    answer = fcntl.ioctl(command.held.descriptors["stdout"], termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def open_descriptors(container):
    """Count what we and the keeper have open."""
    pids = (os.getpid(), keeper_pid(container.run_dir))
    return [len(descriptors(pid)) for pid in pids]
