import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta

from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.warm_pool.inventory import Inventory
from sandbox_engine.sandboxes.warm_pool.levels import Stock
from sandbox_engine.sandboxes.warm_pool.pending_creates import Quiet
from sandbox_engine.system.errors import SandboxNotFound
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

# Nobody tells of a template that was built anew, nor of a ready sandbox that ended.
_LOOK_AGAIN = timedelta(seconds=10)
# Where creates never cease, a ready sandbox takes work off them all the same.
_PATIENCE = timedelta(seconds=10)


class Restocking:
    """Makes what is wanted ready, one of each kind at a time, and removes what is not."""

    def __init__(self, inventory: Inventory, lifecycle: Lifecycle, quiet: Quiet) -> None:
        self._inventory = inventory
        self._lifecycle = lifecycle
        self._quiet = quiet
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._is_stopped = False

    def look(self) -> None:
        """Look at once whether there is something to do."""
        self._changed.set()

    def stop(self) -> None:
        """Start nothing new; what is under way goes on."""
        self._is_stopped = True

    async def finish(self) -> None:
        """Stop once everything that was begun has been finished."""
        self.stop()
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                self._changed.clear()
                pause = self._settle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await self._changed.wait()
        finally:
            for task in self._at_work.values():
                task.cancel()

    async def discard(self, record: SandboxRecord) -> None:
        """Remove a ready sandbox, unless somebody has got it meanwhile."""
        with suppress(SandboxNotFound):
            async with self._lifecycle.transition(record.id):
                if record.state is State.RESERVED:
                    await self._lifecycle.kill(record, "not wanted ready any more")

    def _settle(self) -> timedelta:
        """Start what brings the ready closer to the wanted; tells when to look again."""
        if self._is_stopped:
            return _LOOK_AGAIN
        stocks = self._inventory.stocks()
        kept = {record.id for stock in stocks for record in stock.ready[: stock.wanted]}
        for record in self._inventory.ready():
            if record.id not in kept:
                self._work(record.id, self.discard(record))
        for stock in stocks:
            if stock.lacks and stock.attempts.may_try:
                self._work(stock.kind, self._make(stock))
        pauses = (stock.attempts.pause for stock in stocks if stock.lacks)
        return min((_LOOK_AGAIN, *filter(None, pauses)))

    def _work(self, key: str, work: Coroutine[None, None, None]) -> None:
        if key in self._at_work:
            work.close()
            return
        task = asyncio.create_task(work)
        self._at_work[key] = task
        task.add_done_callback(lambda _: self._rest(key))

    def _rest(self, key: str) -> None:
        del self._at_work[key]
        self.look()

    async def _make(self, stock: Stock) -> None:
        await self._quiet.wait(_PATIENCE)
        if self._is_stopped:
            return
        try:
            await self._lifecycle.reserve(stock.model)
        except MachineFull as error:  # no fault of the template's
            stock.attempts.postpone(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, creates get it themselves
            stock.attempts.fail(str(error))
            if stock.attempts.is_given_up:
                log.error("no more made ready", template=stock.model.template, error=error)
        else:
            stock.attempts.succeed()
