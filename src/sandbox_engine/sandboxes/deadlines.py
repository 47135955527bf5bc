import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

RETRY_AFTER = timedelta(seconds=5)


class Deadlines:
    """Calls back when a sandbox's deadline passes; the records hold the deadlines."""

    def __init__(self, expired: Callable[[str], Awaitable[None]]) -> None:
        self._expired = expired
        self._at: dict[str, datetime] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def arm(self, sandbox_id: str, at: datetime) -> None:
        """Set or replace the sandbox's deadline."""
        self._at[sandbox_id] = at
        self._changed.set()

    def disarm(self, sandbox_id: str) -> None:
        self._at.pop(sandbox_id, None)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._changed.clear()
                self._ring(datetime.now(UTC))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds_to_next()):
                        await self._changed.wait()
        finally:
            for task in self._tasks:
                task.cancel()

    def _ring(self, now: datetime) -> None:
        for sandbox_id in [one for one, at in self._at.items() if at <= now]:
            del self._at[sandbox_id]
            task = asyncio.create_task(self._expire(sandbox_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _expire(self, sandbox_id: str) -> None:
        try:
            await self._expired(sandbox_id)
        except Exception:
            log.exception("expiring a sandbox failed", id=sandbox_id)
            self.arm(sandbox_id, datetime.now(UTC) + RETRY_AFTER)

    def _seconds_to_next(self) -> float | None:
        if not self._at:
            return None
        return max(0.0, (min(self._at.values()) - datetime.now(UTC)).total_seconds())
