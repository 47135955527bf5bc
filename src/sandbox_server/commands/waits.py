import asyncio
from contextlib import suppress
from datetime import timedelta


class Waits:
    """Waits of callers, all of which end when the server is about to."""

    def __init__(self) -> None:
        self.are_ended = False
        self._patience: set[asyncio.Timeout] = set()

    async def wait_for(self, event: asyncio.Event, wait: timedelta) -> None:
        """Wait for the event, no longer than that."""
        if self.are_ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait.total_seconds()) as patience:
                self._patience.add(patience)
                try:
                    await event.wait()
                finally:
                    self._patience.discard(patience)

    def end(self) -> None:
        """Let all of them be over, as if their time was up."""
        self.are_ended = True
        now = asyncio.get_running_loop().time()
        for patience in self._patience:
            patience.reschedule(now)
