from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.records.sandbox_store import RecordStore
from sandbox_engine.sandboxes.containers import Containers
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)


async def adopt(store: RecordStore, containers: Containers, lifecycle: Lifecycle) -> None:
    """Take over sandboxes of an earlier engine, and clean up unfinished ones."""
    records = list(store.load_all())
    await containers.sweep(records)
    for record in records:
        lifecycle.records[record.id] = record
        async with lifecycle.transition(record.id):
            await _settle(record, containers, lifecycle)


async def _settle(record: SandboxRecord, containers: Containers, lifecycle: Lifecycle) -> None:
    if record.state in (State.CREATING, State.KILLING):
        await lifecycle.kill(record, "interrupted by a crash of the engine")
        return
    if record.filesystem_only and record.init is not None:
        await lifecycle.container_lost(record, record.reason)
    sandbox = await containers.reattach(record)
    if sandbox is not None:
        if record.state is State.RUNNING:
            containers.thaw(record)  # the crash may have interrupted a pause
        elif record.state is State.PAUSED:
            await containers.freeze(record)
        if record.policing:
            await lifecycle.apply_network_policy(record)
        lifecycle.take(record, sandbox)
    elif record.state is State.RESERVED:
        await lifecycle.kill(record, "ended before it was assigned")
        return
    elif record.init is not None or record.link is not None:
        await lifecycle.container_lost(record, "processes ended while the engine was not running")
    log.info("adopted", id=record.id, state=record.state)
