import asyncio
import os
from contextlib import suppress
from pathlib import Path

from sandbox_engine.container import disk, search_path
from sandbox_engine.container.disk_freeze import thaw
from sandbox_engine.container.overlay import mount_overlay, write_engine_layer
from sandbox_engine.container.snapshot_bases import SnapshotBases
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.records.sandbox_store import RecordStore
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system import loop_devices
from sandbox_engine.system.errors import StartFailed
from sandbox_engine.system.settings import Settings
from sandbox_engine.system.subprocesses import Runner

_LONGEST_RELEASE_S = 30.0
_RELEASE_POLL_S = 0.01


class RootFilesystems:
    """Root file systems of sandboxes.

    From bottom to top: the image's layers, the disks of snapshots, the sandbox's own disk.
    """

    def __init__(
        self, settings: Settings, *, store: RecordStore, snapshot_bases: SnapshotBases, run: Runner
    ) -> None:
        self._store = store
        self._snapshot_bases = snapshot_bases
        self._run = run
        self._engine_layer = settings.state_dir / "engine-layer"
        self._disk_templates = settings.state_dir / "disks"
        self._usual_disk_mb = settings.disk_mb
        self._directory = settings.instance_run_dir / "roots"

    async def prepare(self, *, gateway: str) -> None:
        """Create what all roots share."""
        # The runtime accesses a root as the sandbox's root user, hence by group.
        self._directory.mkdir(exist_ok=True, mode=0o710)
        os.chown(self._directory, 0, UID_BASE)
        write_engine_layer(self._engine_layer, gateway=gateway)
        await self._disk_template(self._usual_disk_mb)

    def path(self, sandbox_id: str) -> Path:
        """Mount point of the sandbox's root."""
        return self._directory / sandbox_id

    def image(self, sandbox_id: str) -> Path:
        """Path of the sandbox's disk image."""
        return self._store.path(sandbox_id) / "disk.img"

    def mounted(self) -> set[str]:
        """List sandboxes with a root directory, without using records."""
        return {path.name for path in self._directory.iterdir()}

    async def mount(self, record: SandboxRecord) -> None:
        """Mount the sandbox's root, creating an empty disk if it has none."""
        image = self.image(record.id)
        if image.exists():
            await wait_released(image)
        template = await self._disk_template(record.resources.disk_mb)
        snapshots = await self._snapshot_bases.acquire(record.base, holder=record.id)
        layers = [*record.layers, self._engine_layer, *snapshots]
        await asyncio.to_thread(self._mount, record, layers, image, template)

    async def keep(self, record: SandboxRecord) -> None:
        """Keep a root mounted by an earlier engine."""
        with suppress(StartFailed):  # the snapshot's record is lost; the mount stays
            await self._snapshot_bases.acquire(record.base, holder=record.id)

    async def unmount(self, sandbox_id: str) -> None:
        """Unmount the root and the disk if mounted."""
        await asyncio.to_thread(self._unmount, sandbox_id)
        await self._snapshot_bases.release(sandbox_id)

    def thaw(self, sandbox_id: str) -> None:
        """Thaw a disk that a killed engine left frozen while copying it."""
        thaw(self._store.path(sandbox_id) / "disk")

    def _mount(
        self, record: SandboxRecord, layers: list[Path], image: Path, template: Path
    ) -> None:
        changes, root = image.parent / "disk", self.path(record.id)
        for made in (changes, root):
            made.mkdir(exist_ok=True, mode=0o700)
        if not image.exists():
            disk.copy_sparse(template, image)
        disk.attach(image, changes)
        mount_overlay(
            layers,
            changes=changes,
            target=root,
            files=_own_files(record),
        )

    def _unmount(self, sandbox_id: str) -> None:
        root = self.path(sandbox_id)
        disk.detach(root)
        with suppress(FileNotFoundError):
            root.rmdir()
        disk.detach(self._store.path(sandbox_id) / "disk")

    async def _disk_template(self, size_mb: int) -> Path:
        """Create an empty file system of this size once, as a template for disks."""
        template = self._disk_templates / f"{size_mb}.img"
        if not template.exists():
            template.parent.mkdir(exist_ok=True, mode=0o700)
            fresh = template.with_suffix(".new")
            await disk.make(fresh, size_mb=size_mb, run=self._run)
            fresh.rename(template)
        return template


def _own_files(record: SandboxRecord) -> dict[str, str]:
    files = {
        "run/e2b/.E2B_SANDBOX": "true",
        "run/e2b/.E2B_SANDBOX_ID": record.id,
        "run/e2b/.E2B_TEMPLATE_ID": record.template,
    }
    if path := record.template_envs.get("PATH"):
        files[search_path.PROFILE] = search_path.profile(path)
    return files


async def wait_released(image: Path) -> None:
    """Wait until the image is not mounted any more; mounting it twice would corrupt it.

    An unmounted file system stays active until its last open file is closed.
    """
    try:
        async with asyncio.timeout(_LONGEST_RELEASE_S):
            while await asyncio.to_thread(loop_devices.is_in_use, image):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_RELEASE_POLL_S)
    except TimeoutError:
        raise StartFailed("its disk is still in use") from None
