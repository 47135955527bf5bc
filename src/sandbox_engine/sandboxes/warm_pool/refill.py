import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta

from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.warm_pool.inventory import Inventory
from sandbox_engine.sandboxes.warm_pool.levels import PoolLevel
from sandbox_engine.sandboxes.warm_pool.pending_creates import PendingCreates
from sandbox_engine.system.errors import SandboxNotFound
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

# Rebuilt templates and ended sandboxes send no notification.
_LOOK_AGAIN = timedelta(seconds=10)
# Refill even if creates never cease: each ready sandbox saves one a start.
_PATIENCE = timedelta(seconds=10)


class PoolRefill:
    """Starts missing sandboxes, one of each kind at a time, and removes surplus ones."""

    def __init__(
        self, inventory: Inventory, lifecycle: Lifecycle, pending_creates: PendingCreates
    ) -> None:
        self._inventory = inventory
        self._lifecycle = lifecycle
        self._pending_creates = pending_creates
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._is_stopped = False

    def trigger(self) -> None:
        """Check at once whether there is work."""
        self._changed.set()

    def stop(self) -> None:
        """Start no more sandboxes; starts in progress continue."""
        self._is_stopped = True

    async def finish(self) -> None:
        """Stop after finishing starts in progress."""
        self.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._changed.clear()
                pause = self._reconcile()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await self._changed.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def discard(self, record: SandboxRecord) -> None:
        """Remove a ready sandbox unless it was assigned meanwhile."""
        with suppress(SandboxNotFound):
            async with self._lifecycle.transition(record.id):
                if record.state is State.RESERVED:
                    await self._lifecycle.kill(record, "surplus in the warm pool")

    def _reconcile(self) -> timedelta:
        """Start and remove sandboxes to reach the targets.

        Returns the time until the next check.
        """
        if self._is_stopped:
            return _LOOK_AGAIN
        levels = self._inventory.levels()
        kept = {record.id for level in levels for record in level.ready[: level.wanted]}
        for record in self._inventory.ready():
            if record.id not in kept:
                self._spawn(record.id, self.discard(record))
        for level in levels:
            if level.is_below_target and level.attempts.may_try:
                self._spawn(level.kind, self._make(level))
        pauses = (level.attempts.pause for level in levels if level.is_below_target)
        return min((_LOOK_AGAIN, *filter(None, pauses)))

    def _spawn(self, key: str, work: Coroutine[None, None, None]) -> None:
        if key in self._tasks:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._finished(key))

    def _finished(self, key: str) -> None:
        del self._tasks[key]
        self.trigger()

    async def _make(self, level: PoolLevel) -> None:
        await self._pending_creates.wait(_PATIENCE)
        if self._is_stopped:
            return
        try:
            await self._lifecycle.reserve(level.model)
        except MachineFull as error:  # not a failure of the template
            level.attempts.postpone(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, creates get it themselves
            level.attempts.fail(str(error))
            if level.attempts.is_given_up:
                log.error(
                    "warm pool of a template suspended", template=level.model.template, error=error
                )
        else:
            level.attempts.succeed()
