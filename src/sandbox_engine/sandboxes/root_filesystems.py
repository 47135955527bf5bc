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
    """The sandboxes' root file systems.

    The layers of an image lie lowest, then the disks of the snapshots that the sandbox stands on,
    and on top is a disk of its own.
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

    async def prepare(self, *, nameserver: str) -> None:
        """Make what all roots share."""
        # The runtime reaches a root as the sandbox's own root user, hence by its group.
        self._directory.mkdir(exist_ok=True, mode=0o710)
        os.chown(self._directory, 0, UID_BASE)
        write_engine_layer(self._engine_layer, nameserver=nameserver)
        await self._disk_template(self._usual_disk_mb)

    def path(self, sandbox_id: str) -> Path:
        """Where the sandbox's root is mounted."""
        return self._directory / sandbox_id

    def image(self, sandbox_id: str) -> Path:
        """Where the sandbox's disk is kept."""
        return self._store.path(sandbox_id) / "disk.img"

    def mounted(self) -> set[str]:
        """List the sandboxes that have a root, as far as that is known without their records."""
        return {path.name for path in self._directory.iterdir()}

    async def mount(self, record: SandboxRecord) -> None:
        """Mount the sandbox's root; one that has no disk yet gets an empty one."""
        image = self.image(record.id)
        if image.exists():
            await wait_released(image)
        template = await self._disk_template(record.resources.disk_mb)
        snapshots = await self._snapshot_bases.hold(record.base, holder=record.id)
        layers = [*record.layers, self._engine_layer, *snapshots]
        await asyncio.to_thread(self._mount, record, layers, image, template)

    async def keep(self, record: SandboxRecord) -> None:
        """Go on with a root that an engine before this one has mounted."""
        with suppress(StartFailed):  # a snapshot's record is lost; what is mounted goes on
            await self._snapshot_bases.hold(record.base, holder=record.id)

    async def unmount(self, sandbox_id: str) -> None:
        """Unmount the root and the disk, as far as they are mounted."""
        await asyncio.to_thread(self._unmount, sandbox_id)
        await self._snapshot_bases.release(sandbox_id)

    def thaw(self, sandbox_id: str) -> None:
        """Let the sandbox write where an engine was killed while it copied the disk."""
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
        """Make an empty file system of this size, once, to copy for each sandbox."""
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
    """Return when the image is mounted nowhere; mounted twice it would be destroyed.

    An unmounted file system goes on until the last file in it is closed.
    """
    try:
        async with asyncio.timeout(_LONGEST_RELEASE_S):
            while await asyncio.to_thread(loop_devices.is_in_use, image):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_RELEASE_POLL_S)
    except TimeoutError:
        raise StartFailed("its disk is still in use") from None
