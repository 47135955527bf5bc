import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

_FIRST_LOOK_S, _LAST_LOOK_S = 0.01, 0.25


class NotLocked(Exception):
    """Another process or task holds the lock."""


@asynccontextmanager
async def locked(
    path: Path, *, shared: bool = False, wait: timedelta = timedelta(0)
) -> AsyncIterator[None]:
    """Hold a lock of a file; raises NotLocked after the wait. All servers of this machine honour it.

    The lock ends with the process. Locks of one process exclude each other too, since each opens the file anew.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await _lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait)
        yield
    finally:
        os.close(descriptor)


async def _lock(descriptor: int, kind: int, wait: timedelta) -> None:
    pause, end = _FIRST_LOOK_S, asyncio.get_running_loop().time() + wait.total_seconds()
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() >= end:
                raise NotLocked from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_S)
        else:
            return
