import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.start_command import run_start_command
from sandbox_engine.system.errors import StartFailed


class PendingStarts:
    """Sandboxes that are starting; each start can be cancelled."""

    def __init__(self, *, timeout: timedelta) -> None:
        self._timeout = timeout
        self._under_way: dict[str, asyncio.Future[str]] = {}

    @contextmanager
    def registered(self, sandbox_id: str) -> Iterator[None]:
        """Register the sandbox, so that its start can be cancelled from the beginning."""
        self._under_way[sandbox_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._under_way[sandbox_id]

    async def run_start_command(self, sandbox: Sandbox) -> None:
        """Run the template's start command until the sandbox is ready or cancelled."""
        if not sandbox.record.starts_something:
            return
        cancelled = self._under_way[sandbox.id]
        starting = asyncio.create_task(run_start_command(sandbox, timeout=self._timeout))
        try:
            await asyncio.wait((starting, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if cancelled.done():
                raise StartFailed(cancelled.result())
            await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    def cancel(self, sandbox_id: str, reason: str) -> None:
        """Make the sandbox's start fail, if it is in progress."""
        cancelled = self._under_way.get(sandbox_id)
        if cancelled is not None and not cancelled.done():
            cancelled.set_result(reason)

    def cancel_all(self, reason: str) -> None:
        for sandbox_id in self._under_way:
            self.cancel(sandbox_id, reason)
