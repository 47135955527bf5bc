from collections.abc import Sequence

from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.warm_pool.compatibility import hand_over, kind_of
from sandbox_engine.sandboxes.warm_pool.inventory import Inventory
from sandbox_engine.sandboxes.warm_pool.levels import Stock
from sandbox_engine.sandboxes.warm_pool.pending_creates import Quiet
from sandbox_engine.sandboxes.warm_pool.refill import Restocking
from sandbox_engine.system.errors import StartFailed
from sandbox_engine.system.settings import Settings


class Reserve:
    """Ready sandboxes of the templates in demand, handed out by create and made up for afterwards."""

    def __init__(
        self, settings: Settings, lifecycle: Lifecycle, *, catalog: Catalog, always: Sequence[str]
    ) -> None:
        self._lifecycle = lifecycle
        self._inventory = Inventory(settings, lifecycle, catalog=catalog, always=always)
        self._quiet = Quiet()
        self._restocking = Restocking(self._inventory, lifecycle, self._quiet)
        self._inherited = {record.id for record in self._inventory.ready()}

    async def run(self) -> None:
        """Keep as many ready as are wanted, until cancelled."""
        await self._restocking.run()

    def stop(self) -> None:
        """Start nothing new; what is under way goes on."""
        self._restocking.stop()

    async def undo(self) -> None:
        """Stop, and remove what this engine has made ready."""
        await self._restocking.finish()
        for record in self._inventory.ready():
            if record.id not in self._inherited:
                await self._restocking.discard(record)

    def stocks(self) -> list[Stock]:
        """Tell what is ready and what should be."""
        return self._inventory.stocks()

    async def create(self, wanted: SandboxRecord, *, reference: str) -> SandboxRecord:
        """Hand out a ready sandbox, or start one where none of its kind is ready."""
        self._inventory.demand.note(reference)
        try:
            return self._claim(wanted) or await self._start(wanted)
        finally:
            self._restocking.look()

    def _claim(self, wanted: SandboxRecord) -> SandboxRecord | None:
        # Nothing is awaited here, so no two creates get the same one.
        ready = self._inventory.find(wanted)
        if ready is not None:
            hand_over(ready, wanted)
            self._lifecycle.hand_out(ready)
        return ready

    async def _start(self, wanted: SandboxRecord) -> SandboxRecord:
        attempts = self._inventory.attempts(kind_of(wanted))
        try:
            with self._quiet.disturbed():
                await self._start_giving_way(wanted)
        except StartFailed as error:
            attempts.fail(str(error))
            raise
        attempts.succeed()
        return wanted

    async def _start_giving_way(self, wanted: SandboxRecord) -> None:
        """Start a sandbox; where the machine has no room, ready ones go first."""
        while True:
            try:
                return await self._lifecycle.create(wanted)
            except MachineFull:
                if not (idle := self._inventory.ready()):
                    raise
            await self._restocking.discard(idle[0])
