import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from sandbox_engine.metrics.history import History
from sandbox_engine.sandboxes.sandbox import Sandbox, Usage

INTERVAL = timedelta(seconds=5)


class Sampler:
    """Measures every running sandbox at an interval."""

    def __init__(
        self,
        running: Callable[[], Iterable[Sandbox]],
        *,
        find_running: Callable[[str], Sandbox | None],
        directory: Callable[[str], Path],
    ) -> None:
        self._running = running
        self._find_running = find_running
        self._directory = directory
        self._histories: dict[str, History] = {}

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            for sandbox in list(self._running()):
                self._history(sandbox.id).add(sandbox.usage())
                await asyncio.sleep(0)  # yields to the event loop between sandboxes
            self._forget_removed()
            await asyncio.sleep(INTERVAL.total_seconds())

    def samples(self, sandbox_id: str) -> list[Usage]:
        """Return all measurements, oldest first, and the current one if the sandbox runs."""
        sandbox = self._find_running(sandbox_id)
        now = [] if sandbox is None else [sandbox.usage()]
        return [*self._history(sandbox_id).all(), *now]

    def _history(self, sandbox_id: str) -> History:
        return self._histories.setdefault(sandbox_id, History(self._directory(sandbox_id)))

    def _forget_removed(self) -> None:
        for sandbox_id in list(self._histories):
            if not self._directory(sandbox_id).exists():
                del self._histories[sandbox_id]
