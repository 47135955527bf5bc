import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox_engine.container import cgroups
from sandbox_engine.container.snapshot_bases import SnapshotBases
from sandbox_engine.keeper.client import Keeper
from sandbox_engine.machine.capacity import Capacity
from sandbox_engine.machine.resources import MIB
from sandbox_engine.network.network import Network
from sandbox_engine.records.sandbox_store import RecordStore
from sandbox_engine.records.snapshot_store import SnapshotStore
from sandbox_engine.sandboxes.adoption import adopt
from sandbox_engine.sandboxes.containers import Containers
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.system.errors import CannotRun
from sandbox_engine.system.settings import Settings
from sandbox_engine.volumes.volumes import Volumes


@dataclass(frozen=True)
class Infrastructure:
    """Everything that the lifecycle of sandboxes is built on."""

    settings: Settings
    keeper: Keeper
    network: Network
    store: RecordStore
    volumes: Volumes
    snapshots: SnapshotStore
    snapshot_bases: SnapshotBases
    containers: Containers
    capacity: Capacity

    @classmethod
    async def prepare(cls, settings: Settings) -> Self:
        run_dir = settings.instance_run_dir
        store = RecordStore(settings.state_dir / "sandboxes")
        keeper = await Keeper.connect(run_dir / "keeper")
        network = await Network.open(
            instance=settings.instance,
            run_dir=run_dir,
            state_dir=settings.state_dir,
            keeper=keeper,
            pool_size=settings.pool_size,
            subnet_pool=settings.subnet_pool,
            allow=settings.allow_private,
        )
        init = shutil.which("catatonit")
        assert init is not None, "checked before the engine starts"
        snapshots = SnapshotStore(settings.state_dir / "snapshots")
        snapshot_bases = SnapshotBases(snapshots)
        capacity = Capacity(
            settings.state_dir,
            min_free_memory=settings.min_free_memory_mb * MIB,
            min_free_disk=settings.min_free_disk_mb * MIB,
        )
        volumes = Volumes(
            settings.state_dir / "volumes",
            size_mb=settings.volume_mb,
            capacity=capacity,
            run=keeper.run,
        )
        containers = Containers(
            settings,
            store=store,
            keeper=keeper,
            network=network,
            volumes=volumes,
            capacity=capacity,
            snapshot_bases=snapshot_bases,
            init=Path(init),
        )
        await containers.prepare()
        return cls(
            settings=settings,
            keeper=keeper,
            network=network,
            store=store,
            volumes=volumes,
            snapshots=snapshots,
            snapshot_bases=snapshot_bases,
            containers=containers,
            capacity=capacity,
        )

    async def adopt(self) -> Lifecycle:
        """Take over the sandboxes of an earlier engine."""
        lifecycle = Lifecycle(
            self.store,
            self.containers,
            capacity=self.capacity,
            start_timeout=self.settings.start_timeout,
        )
        await adopt(self.store, self.containers, lifecycle)
        await self.volumes.sweep()
        self.keeper.release_unclaimed()
        return lifecycle

    async def detach(self) -> None:
        """Stop the engine; sandboxes keep running."""
        await self.snapshot_bases.close()
        await self.network.close()
        await self.keeper.close()

    async def destroy(self) -> None:
        """Stop and remove everything."""
        await self.snapshot_bases.close()
        await self.network.destroy()
        await self.keeper.close()
        cgroups.remove(self.settings.cgroup)
        shutil.rmtree(self.settings.instance_run_dir)

    async def roll_back(self) -> None:
        """Stop and remove everything, unless sandboxes exist."""
        await self.network.drain()
        if self.network.has_links or self.containers.has_any:
            await self.detach()
        else:
            await self.destroy()


@contextmanager
def sole_owner(settings: Settings) -> Iterator[None]:
    """Lock the state directory against other engines."""
    run_dir = settings.instance_run_dir
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    descriptor = os.open(run_dir / "engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CannotRun(f"another engine uses {settings.state_dir}") from None
    try:
        yield
    finally:
        os.close(descriptor)
