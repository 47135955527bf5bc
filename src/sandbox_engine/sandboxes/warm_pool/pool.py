from collections.abc import Sequence

from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.warm_pool.compatibility import assign_request, compatibility_key
from sandbox_engine.sandboxes.warm_pool.inventory import Inventory
from sandbox_engine.sandboxes.warm_pool.levels import PoolLevel
from sandbox_engine.sandboxes.warm_pool.pending_creates import PendingCreates
from sandbox_engine.sandboxes.warm_pool.refill import PoolRefill
from sandbox_engine.system.errors import StartFailed
from sandbox_engine.system.settings import Settings


class WarmPool:
    """Warm pools of the templates in demand; refilled in the background."""

    def __init__(
        self, settings: Settings, lifecycle: Lifecycle, *, catalog: Catalog, always: Sequence[str]
    ) -> None:
        self._lifecycle = lifecycle
        self._inventory = Inventory(settings, lifecycle, catalog=catalog, always=always)
        self._pending_creates = PendingCreates()
        self._refill = PoolRefill(self._inventory, lifecycle, self._pending_creates)
        self._inherited = {record.id for record in self._inventory.ready()}

    async def run(self) -> None:
        """Keep the pools filled until cancelled."""
        await self._refill.run()

    def stop(self) -> None:
        """Start no more sandboxes; starts in progress continue."""
        self._refill.stop()

    async def remove_created(self) -> None:
        """Stop, and remove the sandboxes created by this engine."""
        await self._refill.finish()
        for record in self._inventory.ready():
            if record.id not in self._inherited:
                await self._refill.discard(record)

    def levels(self) -> list[PoolLevel]:
        """Return the pool levels."""
        return self._inventory.levels()

    async def create(self, wanted: SandboxRecord, *, reference: str) -> SandboxRecord:
        """Assign a ready sandbox, or start one if none matches."""
        self._inventory.demand.note(reference)
        try:
            return self._claim(wanted) or await self._start(wanted)
        finally:
            self._refill.trigger()

    def _claim(self, wanted: SandboxRecord) -> SandboxRecord | None:
        # No await here, so that no two creates get the same sandbox.
        ready = self._inventory.find(wanted)
        if ready is not None:
            assign_request(ready, wanted)
            self._lifecycle.assign(ready)
        return ready

    async def _start(self, wanted: SandboxRecord) -> SandboxRecord:
        attempts = self._inventory.attempts(compatibility_key(wanted))
        try:
            with self._pending_creates.creating():
                await self._start_with_eviction(wanted)
        except StartFailed as error:
            attempts.fail(str(error))
            raise
        attempts.succeed()
        return wanted

    async def _start_with_eviction(self, wanted: SandboxRecord) -> None:
        """Start a sandbox; if the machine is full, evict ready ones first."""
        while True:
            try:
                return await self._lifecycle.create(wanted)
            except MachineFull:
                if not (idle := self._inventory.ready()):
                    raise
            await self._refill.discard(idle[0])
