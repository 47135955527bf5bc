from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from sandbox_server.domain.jobs import ProviderSaturated

_limited_by: ContextVar[set[str] | None] = ContextVar("lanes_entered", default=None)


@contextmanager
def without_limits() -> Iterator[None]:
    """Send requests in the block without counting them, for health checks of providers."""
    token = _limited_by.set(None)
    try:
        yield
    finally:
        _limited_by.reset(token)


class ProviderLimits:
    """Limits how many jobs of the scheduler wait for one provider at once.

    A job counts against a provider from its first request there until it ends. A job above the limit is released, and
    none like it is claimed until another one ends. Requests of callers are not limited.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._in: Counter[str] = Counter()
        self._most: int | None = None
        self._on_free: Callable[[], None] = lambda: None

    def share(self, slots: int, *, on_free: Callable[[], None]) -> None:
        """Divide a scheduler's slots among the providers; `on_free` is called when one is below its limit again."""
        self._most = max(1, slots // self._count) if self._count > 1 else None
        self._on_free = on_free

    @property
    def saturated(self) -> frozenset[str]:
        if self._most is None:
            return frozenset()
        return frozenset(name for name, count in self._in.items() if count >= self._most)

    def job(self) -> AbstractContextManager[None]:
        """Count the requests in the block as one job, if there is more than one provider."""
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
        """Count the current job against a provider; raises `ProviderSaturated` at the limit."""
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
