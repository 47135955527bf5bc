import posixpath
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from sandbox_server.db.locks import Locks, NotFree
from sandbox_server.domain.errors import FileBusy

_WAIT = timedelta(seconds=30)


class PathLocks:
    """Locks paths, across all servers, while they are examined and replaced."""

    def __init__(self, locks: Locks, *, wait: timedelta = _WAIT) -> None:
        self._locks = locks
        self._wait = wait

    @asynccontextmanager
    async def hold(self, sandbox_id: str, *paths: str) -> AsyncIterator[None]:
        """Hold these paths until the block ends."""
        async with AsyncExitStack() as held:
            for name in sorted({_last_name(path) for path in paths}):
                holding = self._locks.hold(f"{sandbox_id}/{name}", wait=self._wait)
                try:
                    await held.enter_async_context(holding)
                except NotFree:
                    raise FileBusy(paths[0]) from None
            yield


def _last_name(path: str) -> str:
    # Without the directory, which may have several names.
    return posixpath.basename(posixpath.normpath(path))
