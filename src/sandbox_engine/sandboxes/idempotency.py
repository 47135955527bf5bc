import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from sandbox_engine.system.errors import IdempotencyConflict

T = TypeVar("T")

_REMEMBERED = 10_000


class IdempotencyKeys(Generic[T]):
    """One result per idempotency key.

    A repeated request joins or repeats the first one's result.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, asyncio.Future[T]]] = OrderedDict()

    async def once(self, key: str, digest: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work once per key; a failure frees the key."""
        if key in self._answers:
            known, answer = self._answers[key]
            if known != digest:
                raise IdempotencyConflict
        else:
            answer = asyncio.ensure_future(work())
            self._remember(key, digest, answer)
        try:
            return await asyncio.shield(answer)
        except Exception:
            self._answers.pop(key, None)
            raise

    def remember(self, key: str, digest: str, answer: T) -> None:
        """Restore the result of a request before a restart."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        self._remember(key, digest, future)

    def _remember(self, key: str, digest: str, answer: asyncio.Future[T]) -> None:
        self._answers[key] = (digest, answer)
        while len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
