"""A sandbox's init process, seen from the host."""

import asyncio
import os
from pathlib import Path

from sandbox_engine.records.sandbox import InitRecord

# Fields of /proc/PID/stat behind the command's name.
_FLAGS_FIELD = 6
_START_TIME_FIELD = 19
_PF_EXITING = 0x4


def identify(pid: int) -> InitRecord:
    """Identify the process by pid and start time."""
    return InitRecord(pid=pid, start_ticks=int(_stat(pid)[_START_TIME_FIELD]))


def is_alive(init: InitRecord) -> bool:
    """Return whether it is running; a reused pid does not count."""
    try:
        return identify(init.pid) == init
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_ending(init: InitRecord) -> bool:
    """Return whether it has ended or is exiting: its sandbox runs nothing any more."""
    try:
        stat = _stat(init.pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    is_another = int(stat[_START_TIME_FIELD]) != init.start_ticks
    return is_another or bool(int(stat[_FLAGS_FIELD]) & _PF_EXITING)


async def wait_exit(init: InitRecord) -> None:
    """Wait until the process has ended."""
    try:
        descriptor = os.pidfd_open(init.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        if is_alive(init):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
