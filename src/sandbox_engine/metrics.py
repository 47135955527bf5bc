import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from weakref import WeakKeyDictionary

from sandbox_engine.sandbox import Sandbox, Usage

INTERVAL = timedelta(seconds=5)
_KEPT = 720  # an hour


class Sampler:
    """Measures every running sandbox at an interval and remembers the last hour."""

    def __init__(self, running: Callable[[], Iterable[Sandbox]]) -> None:
        self._running = running
        self._samples: WeakKeyDictionary[Sandbox, deque[Usage]] = WeakKeyDictionary()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            for sandbox in list(self._running()):
                self._add(sandbox)
                await asyncio.sleep(0)  # hundreds of sandboxes are not measured in one breath
            await asyncio.sleep(INTERVAL.total_seconds())

    def samples(self, sandbox: Sandbox) -> list[Usage]:
        """Give what was measured, oldest first, with one measurement taken now."""
        return [*self._samples.get(sandbox, ()), sandbox.usage()]

    def _add(self, sandbox: Sandbox) -> None:
        self._samples.setdefault(sandbox, deque(maxlen=_KEPT)).append(sandbox.usage())
