import asyncio
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Batch(Generic[K, V]):
    def __init__(self) -> None:
        self.items: dict[K, V] = {}
        self.written: AbstractSet[K] = frozenset()
        self.over = asyncio.Event()


class Batches(Generic[K, V]):
    """Writes in batches: what arrives during one statement shares the next."""

    def __init__(self, write: Callable[[Mapping[K, V]], Awaitable[AbstractSet[K]]]) -> None:
        """`write` returns the keys that it has written."""
        self._write_all = write
        self._batch = _Batch[K, V]()
        self._turn = asyncio.Lock()

    async def write(self, key: K, value: V) -> bool:
        """Write an item; returns after the commit whether the batch has written it.

        Only the first caller of a batch gets an error of the database; the others get False.
        """
        batch = self._batch
        batch.items[key] = value
        if len(batch.items) == 1:
            await self._write(batch)
        else:
            await batch.over.wait()
        return key in batch.written

    async def _write(self, batch: _Batch[K, V]) -> None:
        try:
            async with self._turn:
                await asyncio.sleep(0)  # what is ready by now joins the batch
                self._batch = _Batch()
                batch.written = await self._write_all(batch.items)
        finally:
            if self._batch is batch:
                self._batch = _Batch()
            batch.over.set()
