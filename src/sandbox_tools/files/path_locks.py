import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from weakref import WeakValueDictionary


class PathLocks:
    """Serialize changes of the same file: agents call several tools concurrently."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, path: Path) -> AbstractAsyncContextManager[None]:
        """Lock the file that the path resolves to."""
        return self._locks.setdefault(os.path.realpath(path), asyncio.Lock())
