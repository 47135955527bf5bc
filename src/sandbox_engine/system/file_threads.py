import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

_T = TypeVar("_T")
_THREADS = 8


class FileThreads:
    """Threads for the file work of one sandbox or volume, so few that its neighbours get theirs."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def run(
        self, work: Callable[[], _T], *, discard: Callable[[_T], None] | None = None
    ) -> _T:
        """Call `work` in a thread; a caller that is cancelled still waits for it to end.

        Otherwise the caller would close descriptors that the thread still uses, and their numbers
        would soon belong to another sandbox's files. `discard` gets what nobody is there to take.
        """
        thread = asyncio.ensure_future(anyio.to_thread.run_sync(work, limiter=self._limiter))
        try:
            # asyncio's own cancellation comes once; anyio's comes until it is heeded, but not while
            # shielded, and a caller that only ever waits here would never heed it.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([thread])
            await anyio.lowlevel.checkpoint_if_cancelled()
        except asyncio.CancelledError:
            await asyncio.wait([thread])
            if discard is not None and thread.exception() is None:
                discard(thread.result())
            raise
        return thread.result()
