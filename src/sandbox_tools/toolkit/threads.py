import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Check = Callable[[], None]


# Of asyncio's own there are six where there are two processors, and as many long searches would hold up all else.
_MOST_THREADS = 64


def have_enough() -> None:
    """Let so much be done at once in the threads of this loop; those that are needed are started."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MOST_THREADS))


class NobodyWaits(Exception):
    """The call that some work was for has been cancelled."""


async def in_thread(work: Callable[[Check], T]) -> T:
    """Do what blocks in a thread; the `check` that it gets, called now and then, ends it when the call is cancelled."""
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise NobodyWaits

    try:
        return await asyncio.to_thread(work, check)
    finally:
        cancelled.set()
