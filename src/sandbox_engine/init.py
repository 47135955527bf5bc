"""A sandbox's first process, seen from the host."""

import asyncio
import os
from pathlib import Path

from sandbox_engine.records import InitRecord

_START_TIME_FIELD = 19  # of /proc/PID/stat, counted behind the command's name


def identify(pid: int) -> InitRecord:
    """Name the process for good."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return InitRecord(pid=pid, start_ticks=int(stat.rpartition(")")[2].split()[_START_TIME_FIELD]))


def is_alive(init: InitRecord) -> bool:
    """Tell whether it still runs; another process with its pid does not count."""
    try:
        return identify(init.pid) == init
    except (FileNotFoundError, ProcessLookupError):
        return False


async def wait_exit(init: InitRecord) -> None:
    """Return when the process has ended."""
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
