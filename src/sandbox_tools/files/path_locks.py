import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from weakref import WeakValueDictionary


class PathLocks:
    """Has changes of one file be made one after the other, since agents call several tools at once."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, path: Path) -> AbstractAsyncContextManager[None]:
        """Have a turn at the file that the path leads to."""
        return self._locks.setdefault(os.path.realpath(path), asyncio.Lock())
