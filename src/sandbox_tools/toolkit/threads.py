import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
CheckCancelled = Callable[[], None]


# asyncio's default is six on two processors; six long searches would block everything else.
_MAX_THREADS = 64


def enlarge_thread_pool() -> None:
    """Replace the event loop's default executor by a larger one."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MAX_THREADS))


class CallCancelled(Exception):
    """The tool call was cancelled."""


async def run_in_thread(work: Callable[[CheckCancelled], T]) -> T:
    """Run blocking work in a thread; the function it receives raises once the call was cancelled."""
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise CallCancelled

    try:
        return await asyncio.to_thread(work, check)
    finally:
        cancelled.set()
