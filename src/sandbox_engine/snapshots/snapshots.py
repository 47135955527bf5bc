import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self

from sandbox_engine.container.disk_copy import is_shared, write_out
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.records.snapshot import SnapshotRecord, SnapshotState
from sandbox_engine.records.template_names import DEFAULT_TAG, Reference
from sandbox_engine.sandboxes.infrastructure import Infrastructure
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.system.errors import InvalidRequest, SnapshotFailed, TemplateNotFound
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

_BLOCK = 512
_MOST_LEVELS = 100  # the limit of mounts is 200 with the image's layers
_WRITE_OUT_AFTER = timedelta(seconds=2)  # new sandboxes get the disk to themselves meanwhile


class Snapshots:
    """Creates, lists and deletes snapshots of sandboxes.

    A snapshot contains files and no processes. Its record is written before the copy, marked as
    unfinished, so that a crash leaves a complete snapshot or none.
    """

    def __init__(
        self,
        infrastructure: Infrastructure,
        lifecycle: Lifecycle,
        *,
        service: SandboxService,
        catalog: Catalog,
    ) -> None:
        self._sandboxes = infrastructure.store
        self._capacity = infrastructure.capacity
        self._store = infrastructure.snapshots
        self._is_shared = is_shared(infrastructure.snapshots.directory)
        self._snapshot_bases = infrastructure.snapshot_bases
        self._lifecycle = lifecycle
        self._service = service
        self._catalog = catalog
        self._writing: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        infrastructure: Infrastructure,
        lifecycle: Lifecycle,
        *,
        service: SandboxService,
        catalog: Catalog,
    ) -> Self:
        """Load existing snapshots; from now on unneeded ones are deleted."""
        snapshots = cls(infrastructure, lifecycle, service=service, catalog=catalog)
        await snapshots._settle()
        lifecycle.on_removed(snapshots.collect)
        return snapshots

    async def take(self, sandbox_id: str, *, name: str | None = None) -> SnapshotRecord:
        """Snapshot the sandbox's files, replacing an older snapshot with this name."""
        reference = Reference.parse(name) if name else Reference("")
        self._refuse_template(reference.name)
        tag = reference.tag or DEFAULT_TAG
        taken = await self.copy(sandbox_id, name=reference.name, tag=tag, listed=True)
        if taken.name:
            self._unlist_all_but_newest(taken.name, tag)
        await self.collect()
        return taken

    async def copy(
        self, sandbox_id: str, *, name: str = "", tag: str = DEFAULT_TAG, listed: bool = False
    ) -> SnapshotRecord:
        """Copy the sandbox's disk; its processes continue, writers wait."""
        async with self._lifecycle.transition(sandbox_id):
            sandbox = self._service.get(sandbox_id)
            if len(self._store.chain(sandbox.base)) >= _MOST_LEVELS:
                raise InvalidRequest(
                    f"The sandbox is based on {_MOST_LEVELS} snapshots, the maximum: build "
                    "a template from one of them"
                )
            snapshot = SnapshotRecord.of(sandbox, name=name, tag=tag, listed=listed)
            with self._store.pinned(snapshot.id):
                await self._copy(sandbox, snapshot)
            self._lifecycle.journal(sandbox).note(f"copied to {snapshot.id}: files, no processes")
        self._write_out(snapshot)
        return snapshot

    def listed(
        self, *, sandbox_id: str | None = None, name: str | None = None
    ) -> Sequence[SnapshotRecord]:
        """List snapshots, newest first, optionally of one sandbox or with a name."""
        wanted = None if name is None else Reference.parse(name)
        return [
            one
            for one in self._store.listed()
            if sandbox_id in (None, one.sandbox_id)
            and (wanted is None or one.matches(wanted.name, wanted.tag or one.tag))
        ]

    async def delete(self, reference: str) -> bool:
        """Delete the snapshot; its sandboxes keep running. Returns whether it existed."""
        found = self._store.find(reference)
        if found is None:
            return False
        self._unlist(found)
        await self.collect()
        return True

    async def collect(self) -> None:
        """Delete unlisted snapshots that no sandbox uses."""
        await self._snapshot_bases.collect(
            record.base for record in self._lifecycle.records.values()
        )

    async def _settle(self) -> None:
        """Clean up after a crash.

        Remove unfinished snapshots and those lost before being flushed.
        """
        for directory in list(self._store.without_record()):
            await self._snapshot_bases.remove(directory.name)
        for snapshot in list(self._store.records.values()):
            if snapshot.state is SnapshotState.TAKING:
                snapshot.listed = False
            elif snapshot.unwritten_since == _boot_id():
                self._write_out(snapshot)
            elif snapshot.unwritten_since is not None:
                log.error("a snapshot was lost in a crash of the machine", id=snapshot.id)
                self._unlist(snapshot)
        await self.collect()
        await self._snapshot_bases.sweep()

    async def _copy(self, sandbox: SandboxRecord, snapshot: SnapshotRecord) -> None:
        source = self._sandboxes.path(sandbox.id)
        with self._capacity.reserve(disk=self._size_of_copy(source / "disk.img")):
            self._store.records[snapshot.id] = snapshot
            try:
                self._store.add(snapshot)
                await self._snapshot_bases.create(snapshot.id, source)
                snapshot.state, snapshot.unwritten_since = SnapshotState.READY, _boot_id()
                self._store.save(snapshot)
            except BaseException as error:
                del self._store.records[snapshot.id]
                await self._snapshot_bases.remove(snapshot.id)
                if isinstance(error, OSError):
                    raise SnapshotFailed(f"The disk could not be copied: {error}") from error
                raise

    def _size_of_copy(self, image: Path) -> int:
        return 0 if self._is_shared else image.stat().st_blocks * _BLOCK

    def _write_out(self, snapshot: SnapshotRecord) -> None:
        task = asyncio.create_task(self._put_on_disk(snapshot))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _put_on_disk(self, snapshot: SnapshotRecord) -> None:
        """Flush the snapshot to disk in the background."""
        await asyncio.sleep(_WRITE_OUT_AFTER.total_seconds())
        try:
            await asyncio.to_thread(write_out, self._store.image(snapshot.id))
            await self._snapshot_bases.release_unused(snapshot.id)
            if snapshot.id in self._store.records:
                snapshot.unwritten_since = None
                self._store.save(snapshot)
        except FileNotFoundError:
            return  # it was deleted meanwhile
        except OSError as error:
            log.warning("flushing a snapshot failed", id=snapshot.id, error=error)

    def _unlist_all_but_newest(self, name: str, tag: str) -> None:
        same = [record for record in self._store.listed() if record.matches(name, tag)]
        for older in same[1:]:
            self._unlist(older)

    def _unlist(self, snapshot: SnapshotRecord) -> None:
        snapshot.listed = False
        self._store.save(snapshot)

    def _refuse_template(self, name: str) -> None:
        if not name or self._store.find(name) is not None:
            return
        try:
            self._catalog.get(name)
        except TemplateNotFound:
            return
        raise InvalidRequest(f"'{name}' is the name of a template")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
