import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from sandbox_engine.machine.capacity import START_DISK, Capacity
from sandbox_engine.records.sandbox import MountRecord, SandboxRecord
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import EngineError, InvalidRequest
from sandbox_engine.system.ids import new_id
from sandbox_engine.system.json_store import JsonStore
from sandbox_engine.system.log import get_logger
from sandbox_engine.system.subprocesses import Runner
from sandbox_engine.volumes.errors import VolumeNotFound
from sandbox_engine.volumes.mounts import check_mount_points, mount_volumes
from sandbox_engine.volumes.record import VolumeRecord, VolumeState
from sandbox_engine.volumes.volume import Volume

log = get_logger(__name__)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TOKEN_BYTES = 32


class Volumes:
    """All volumes and the sandboxes that use them."""

    def __init__(self, directory: Path, *, size_mb: int, capacity: Capacity, run: Runner) -> None:
        self.capacity = capacity
        self._records_on_disk = JsonStore(directory, VolumeRecord)
        self._size_mb = size_mb
        self._run = run
        self._creating = asyncio.Lock()
        self._volumes = {
            record.id: Volume(record, self._records_on_disk.path(record.id))
            for record in self._records_on_disk.load_all()
        }

    async def create(self, name: str) -> VolumeRecord:
        """Create an empty volume with a unique name."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                "Invalid volume name: use 1 to 128 letters, digits, hyphens or underscores"
            )
        async with self._creating:
            if any(record.name == name for record in self.all()):
                raise InvalidRequest(f"Volume with name '{name}' already exists")
            record = VolumeRecord(
                id=new_id(),
                name=name,
                token=secrets.token_hex(_TOKEN_BYTES),
                size_mb=self._size_mb,
                created_at=datetime.now(UTC),
            )
            volume = Volume(record, self._records_on_disk.path(record.id))
            self._volumes[record.id] = volume
            self._records_on_disk.add(record)
            try:
                with self.capacity.reserve(disk=START_DISK):
                    await volume.make(self._run)
                await self._become(volume, VolumeState.READY)
            except (EngineError, OSError):
                await self._discard(volume)
                raise
        log.info("volume created", id=record.id, name=name)
        return record

    def get(self, volume_id: str) -> Volume:
        """Return the volume with this ID."""
        volume = self._volumes.get(volume_id)
        if volume is None or volume.record.state is not VolumeState.READY:
            raise VolumeNotFound(volume_id)
        return volume

    def all(self) -> list[VolumeRecord]:
        """List all volumes, oldest first."""
        records = (volume.record for volume in self._volumes.values())
        ready = (record for record in records if record.state is VolumeState.READY)
        return sorted(ready, key=lambda record: record.id)

    async def delete(self, volume_id: str) -> None:
        """Delete a volume; its files are removed after its last sandbox."""
        volume = self.get(volume_id)
        # Concurrent releases must not discard it before its deletion is recorded.
        volume.keepers.add(volume_id)
        try:
            await self._become(volume, VolumeState.DELETED)
        finally:
            await self.release_mounts(volume_id)
        log.info("volume deleted", id=volume_id)

    def plan(self, wanted: Iterable[tuple[str, str]]) -> tuple[MountRecord, ...]:
        """Find the volumes with these names for mounting in a new sandbox."""
        ids = {record.name: record.id for record in self.all()}
        mounts = list(wanted)
        if missing := [name for name, _ in mounts if name not in ids]:
            raise InvalidRequest(f"Volumes not found: {', '.join(map(repr, missing))}")
        check_mount_points([path for _, path in mounts])
        return tuple(
            MountRecord(volume_id=ids[name], name=name, path=path) for name, path in mounts
        )

    @asynccontextmanager
    async def opened(self, volume: Volume) -> AsyncIterator[Root]:
        """Keep a volume open for file operations from outside."""
        try:
            async with volume.opened() as root:
                yield root
        finally:
            await self._discard_if_nobodys(volume)

    async def mount(self, record: SandboxRecord, root: Path) -> None:
        """Mount a sandbox's volumes in its root before its processes start."""
        self.keep(record)
        mounts = [
            (await self._known(mount.volume_id).acquire(record.id), mount.path)
            for mount in record.volumes
        ]
        if mounts:
            await asyncio.to_thread(mount_volumes, root, mounts)

    async def unmount(self, sandbox_id: str) -> None:
        """Release a sandbox's volumes after its root is removed."""
        for volume in self._all():
            if volume.has_user(sandbox_id):
                await volume.release(sandbox_id)

    def keep(self, record: SandboxRecord) -> None:
        """Keep the files of a sandbox's volumes until the sandbox is deleted."""
        for volume in self._of(record):
            volume.keepers.add(record.id)

    def images(self, record: SandboxRecord) -> list[Path]:
        """List the image files of a sandbox's volumes."""
        return [volume.image for volume in self._of(record)]

    def note_mounted(self, record: SandboxRecord) -> None:
        """Register the mounted volumes of an adopted sandbox."""
        for volume in self._of(record):
            volume.note_user(record.id)

    async def release_mounts(self, keeper: str) -> None:
        """Stop keeping volumes for this sandbox."""
        for volume in self._all():
            if keeper in volume.keepers:
                volume.keepers.discard(keeper)
                await self._discard_if_nobodys(volume)

    async def sweep(self) -> None:
        """Clean up after a crash: unused mounts and orphaned files."""
        for directory in list(self._records_on_disk.without_record()):
            await asyncio.to_thread(self._records_on_disk.remove, directory.name)
        for volume in self._all():
            if not volume.is_used:
                await volume.unmount()
            if volume.record.state is VolumeState.CREATING:
                await self._discard(volume)
            await self._discard_if_nobodys(volume)

    def _all(self) -> list[Volume]:
        return list(self._volumes.values())

    def _known(self, volume_id: str) -> Volume:
        """Find a volume of a sandbox, including deleted ones."""
        if volume_id not in self._volumes:
            raise VolumeNotFound(volume_id)
        return self._volumes[volume_id]

    def _of(self, record: SandboxRecord) -> list[Volume]:
        ids = {mount.volume_id for mount in record.volumes}
        return [volume for volume in self._all() if volume.record.id in ids]

    async def _become(self, volume: Volume, state: VolumeState) -> None:
        volume.record.state = state
        self._records_on_disk.save(volume.record)
        await asyncio.to_thread(self._records_on_disk.flush, volume.record.id)

    async def _discard_if_nobodys(self, volume: Volume) -> None:
        is_deleted = volume.record.state is VolumeState.DELETED
        if is_deleted and not volume.keepers and not volume.is_used:
            await self._discard(volume)

    async def _discard(self, volume: Volume) -> None:
        async with volume.ending:
            self._volumes.pop(volume.record.id, None)
            await volume.unmount()
            await asyncio.to_thread(self._records_on_disk.remove, volume.record.id)
