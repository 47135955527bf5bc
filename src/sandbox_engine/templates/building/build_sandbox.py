import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex

from sandbox_engine.images.image import Image
from sandbox_engine.images.store import ImageStore
from sandbox_engine.machine.capacity import START_DISK, START_MEMORY
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.infrastructure import Infrastructure
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.templates.building.layer_capture import copy_changes, has_changes

_BLOCK = 512


class BuildSandbox:
    """The sandbox in which the steps of a build run.

    Its record stays in `creating`: callers never see it, and the next engine removes it after a
    crash. It starts with the first step that needs it, and again on top of each new layer.
    """

    def __init__(
        self,
        record: SandboxRecord,
        *,
        infrastructure: Infrastructure,
        lifecycle: Lifecycle,
        images: ImageStore,
        slots: asyncio.Semaphore,
    ) -> None:
        self._record = record
        self._lifecycle = lifecycle
        self._containers = infrastructure.containers
        self._store = infrastructure.store
        self._capacity = infrastructure.capacity
        self._images = images
        self._slots = slots
        self._has_slot = False
        self._on_open: Callable[[], None] = lambda: None
        self._on_cancelled: Callable[[], None] = lambda: None
        self.cancel_reason = ""
        self._sandbox: Sandbox | None = None
        self._next_layer = token_hex(16)

    def on_open(self, begin: Callable[[], None]) -> None:
        """Register a callback for the moment when the sandbox may start."""
        self._on_open = begin

    @property
    def sandbox(self) -> Sandbox | None:
        """The current sandbox, if it runs."""
        return self._sandbox

    def on_cancelled(self, end: Callable[[], None]) -> None:
        """Register a callback for a cancelled build."""
        self._on_cancelled = end

    def cancel(self, reason: str) -> None:
        """Make the build fail for this reason."""
        self.cancel_reason = reason
        self._on_cancelled()

    @property
    def next_layer(self) -> Path:
        """Path of the next layer; known in advance, so that it is not removed while unfinished."""
        return Path(self._next_layer)

    async def use_image(self, image: Image) -> Sandbox:
        """Return a sandbox with the image's files and settings."""
        record = self._record
        has_other_path = record.template_envs.get("PATH") != image.env.get("PATH")
        if record.layers != image.layers or has_other_path:
            await self.restart()
        record.layers, record.template_envs = image.layers, dict(image.env)
        record.user, record.workdir = image.user, image.workdir
        if self._sandbox is None:
            self._sandbox = await self._start()
        return self._sandbox

    async def capture_layer(self, image: Image) -> Image:
        """Save the sandbox's changes as the image's topmost layer."""
        if self._sandbox is None or not has_changes(self._changes):
            return image
        # Background processes must not write while files are read.
        await self._containers.freeze(self._record)
        fill = partial(copy_changes, self._changes)
        with self._capacity.reserve(disk=self._disk.stat().st_blocks * _BLOCK):
            layer = await self._images.add_layer(self._next_layer, fill)
        self._next_layer = token_hex(16)
        return replace(image, layers=(*image.layers, layer))

    async def restart(self) -> None:
        """Stop the sandbox and discard its changes."""
        if self._sandbox is not None:
            self._sandbox.close("the build goes on")
            self._sandbox = None
            await self._containers.stop(self._record)
            self._disk.unlink()

    async def close(self) -> None:
        """Remove the sandbox, even if the build is cancelled."""
        if self._record.id in self._lifecycle.records:
            removal = asyncio.create_task(self._remove())
            try:
                await asyncio.shield(removal)
            except asyncio.CancelledError:
                await asyncio.wait([removal])
                raise

    async def _start(self) -> Sandbox:
        if not self._has_slot:
            await self._slots.acquire()
            self._has_slot = True
            self._on_open()
            self._lifecycle.records[self._record.id] = self._record
            self._store.add(self._record)
        with self._capacity.reserve(memory=START_MEMORY, disk=START_DISK):
            return await self._containers.start(self._record)

    async def _remove(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close("the build has ended")
        async with self._lifecycle.transition(self._record.id):
            await self._lifecycle.kill(self._record, "the build has ended")
        self._slots.release()

    @property
    def _disk(self) -> Path:
        return self._store.path(self._record.id) / "disk.img"

    @property
    def _changes(self) -> Path:
        return self._store.path(self._record.id) / "disk" / "upper"
