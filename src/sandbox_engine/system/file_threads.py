import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

_T = TypeVar("_T")
_THREADS = 8


class FileThreads:
    """A limited number of threads for file operations of one sandbox or volume."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def run(
        self, work: Callable[[], _T], *, discard: Callable[[_T], None] | None = None
    ) -> _T:
        """Run `work` in a thread; if the caller is cancelled, it still waits for the end.

        Otherwise the caller would close descriptors that the thread uses, and their numbers would
        soon belong to another sandbox's files. An unused result is passed to `discard`.
        """
        thread = asyncio.ensure_future(anyio.to_thread.run_sync(work, limiter=self._limiter))
        try:
            # asyncio cancels once; anyio repeats the cancellation, but not while shielded, and a
            # caller that only waits here would never see it.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([thread])
            await anyio.lowlevel.checkpoint_if_cancelled()
        except asyncio.CancelledError:
            await asyncio.wait([thread])
            if discard is not None and thread.exception() is None:
                discard(thread.result())
            raise
        return thread.result()
