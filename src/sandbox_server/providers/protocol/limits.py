from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from sandbox_server.domain.jobs import ProviderSaturated

_limited_by: ContextVar[set[str] | None] = ContextVar("lanes_entered", default=None)


@contextmanager
def without_limits() -> Iterator[None]:
    """Ask in the block without being counted, as who finds out whether a provider answers has to."""
    token = _limited_by.set(None)
    try:
        yield
    finally:
        _limited_by.reset(token)


class ProviderLimits:
    """Keeps the jobs that wait for one provider from taking the places of all others.

    A job enters a provider's lane with its first question there and is in it until it is done. One that finds
    the lane full is given back, and none like it is taken until somebody has left. What callers wait for is not limited.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._in: Counter[str] = Counter()
        self._most: int | None = None
        self._on_free: Callable[[], None] = lambda: None

    def share(self, slots: int, *, on_free: Callable[[], None]) -> None:
        """Divide a scheduler's places among the lanes; `tell` is called when one has room again."""
        self._most = max(1, slots // self._count) if self._count > 1 else None
        self._on_free = on_free

    @property
    def saturated(self) -> frozenset[str]:
        if self._most is None:
            return frozenset()
        return frozenset(name for name, count in self._in.items() if count >= self._most)

    def job(self) -> AbstractContextManager[None]:
        """Count what is asked in the block for one job, where there is more than one lane."""
        return nullcontext() if self._most is None else self._counted()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        mine: set[str] = set()
        token = _limited_by.set(mine)
        try:
            yield
        finally:
            _limited_by.reset(token)
            for name in mine:
                self._leave(name)

    def enter(self, name: str) -> None:
        """Take the current job into a provider's lane, or have it given back."""
        mine = _limited_by.get()
        if mine is None or name in mine:
            return
        if name in self.saturated:
            raise ProviderSaturated(name)
        mine.add(name)
        self._in[name] += 1

    def _leave(self, name: str) -> None:
        saturated = name in self.saturated
        self._in[name] -= 1
        if saturated:
            self._on_free()
