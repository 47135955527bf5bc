import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
CheckCancelled = Callable[[], None]


# Of asyncio's own there are six where there are two processors, and as many long searches would hold up all else.
_MAX_THREADS = 64


def enlarge_thread_pool() -> None:
    """Let so much be done at once in the threads of this loop; those that are needed are started."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MAX_THREADS))


class CallCancelled(Exception):
    """The call that some work was for has been cancelled."""


async def run_in_thread(work: Callable[[CheckCancelled], T]) -> T:
    """Do what blocks in a thread; the `check` that it gets, called now and then, ends it when the call is cancelled."""
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise CallCancelled

    try:
        return await asyncio.to_thread(work, check)
    finally:
        cancelled.set()
