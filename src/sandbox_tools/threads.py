import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Check = Callable[[], None]


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
