import asyncio
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from sandbox_engine.container import disk
from sandbox_engine.container.disk_copy import copy_disk
from sandbox_engine.images.scratch import run_to_completion
from sandbox_engine.records.snapshot_store import SnapshotStore
from sandbox_engine.system.errors import StartFailed
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)


_MOST_IDLE = 8


class SnapshotBases:
    """Disks of snapshots, each mounted once read-only below all sandboxes created from it.

    The last used ones stay mounted without a sandbox: the next one finds their files in the kernel's caches.
    """

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._idle: dict[str, None] = {}  # mounted without a holder, longest idle first
        self._holders: defaultdict[str, set[str]] = defaultdict(set)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def acquire(self, base: str | None, *, holder: str) -> list[Path]:
        """Mount the snapshots that `base` consists of; returns the layers, lowest first."""
        try:
            chain = self._store.chain(base)
        except KeyError:
            raise StartFailed(f"snapshot {base} is gone") from None
        for snapshot in chain:
            async with self._locks[snapshot.id]:
                self._holders[snapshot.id].add(holder)
                self._idle.pop(snapshot.id, None)
                await asyncio.to_thread(self._mount, snapshot.id)
        return [self._mountpoint(snapshot.id) / "upper" for snapshot in chain]

    async def create(self, snapshot_id: str, sandbox: Path) -> None:
        """Copy the disk of a sandbox; the copy stays mounted for its first user."""
        image, mountpoint = self._store.image(snapshot_id), self._mountpoint(snapshot_id)
        mountpoint.mkdir(mode=0o700)
        await run_to_completion(partial(copy_disk, sandbox, image, mountpoint=mountpoint))

    async def release_unused(self, snapshot_id: str) -> None:
        """Count a copy that nobody uses among the idle ones."""
        async with self._locks[snapshot_id]:
            if snapshot_id not in self._holders and self._mountpoint(snapshot_id).is_mount():
                self._idle[snapshot_id] = None
        await self._unmount_idle(most=_MOST_IDLE)

    async def release(self, holder: str) -> None:
        """Note that a sandbox ended; snapshots that only it used are idle."""
        for snapshot_id in [one for one, holders in self._holders.items() if holder in holders]:
            async with self._locks[snapshot_id]:
                self._holders[snapshot_id].discard(holder)
                if not self._holders[snapshot_id]:
                    del self._holders[snapshot_id]
                    self._idle[snapshot_id] = None
        await self._unmount_idle(most=_MOST_IDLE)

    async def close(self) -> None:
        """Unmount all snapshots that no sandbox uses."""
        await self._unmount_idle(most=0)

    async def remove(self, snapshot_id: str) -> None:
        """Delete a snapshot's files."""
        async with self._locks.pop(snapshot_id, asyncio.Lock()):
            self._idle.pop(snapshot_id, None)
            await asyncio.to_thread(disk.detach, self._mountpoint(snapshot_id))
            await asyncio.to_thread(self._store.remove, snapshot_id)

    async def collect(self, bases: Iterable[str | None]) -> None:
        """Delete unlisted snapshots that no sandbox uses; `bases` are those of the sandboxes."""
        unneeded = self._store.unneeded(bases)
        for snapshot in unneeded:
            del self._store.records[snapshot.id]
        for snapshot in unneeded:
            try:
                await self.remove(snapshot.id)
            except OSError as error:  # the next engine retries
                log.error("snapshot not removed", id=snapshot.id, error=error)

    async def sweep(self) -> None:
        """Unmount what an earlier engine left mounted, except snapshots in use."""
        for directory in list(self._store.directory.iterdir()):
            if directory.name not in self._holders:
                await asyncio.to_thread(disk.detach, self._mountpoint(directory.name))

    async def _unmount_idle(self, *, most: int) -> None:
        while len(self._idle) > most:
            snapshot_id = next(iter(self._idle))
            async with self._locks[snapshot_id]:
                if snapshot_id in self._idle:  # no sandbox was created from it meanwhile
                    del self._idle[snapshot_id]
                    await asyncio.to_thread(disk.detach, self._mountpoint(snapshot_id))

    def _mount(self, snapshot_id: str) -> None:
        mountpoint = self._mountpoint(snapshot_id)
        mountpoint.mkdir(exist_ok=True, mode=0o700)
        if not mountpoint.is_mount():
            disk.attach_read_only(self._store.image(snapshot_id), mountpoint)

    def _mountpoint(self, snapshot_id: str) -> Path:
        return self._store.path(snapshot_id) / "disk"
