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
    """The sandbox that the steps of one build run in.

    Its record stays in `creating`: callers never see it, and an engine that finds it after a crash
    removes it. It is started when a step first needs it, and anew on each layer that is taken.
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
        self._on_given_up: Callable[[], None] = lambda: None
        self.given_up = ""
        self._sandbox: Sandbox | None = None
        self._next_layer = token_hex(16)

    def on_open(self, begin: Callable[[], None]) -> None:
        """Have something done once the sandbox may start."""
        self._on_open = begin

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox as it is now, if it runs."""
        return self._sandbox

    def on_given_up(self, end: Callable[[], None]) -> None:
        """Have something done when the build may not go on."""
        self._on_given_up = end

    def give_up(self, reason: str) -> None:
        """Have the build fail for this reason."""
        self.given_up = reason
        self._on_given_up()

    @property
    def next_layer(self) -> Path:
        """Where the next changes go; known beforehand, so that nobody removes it half made."""
        return Path(self._next_layer)

    async def stand_on(self, image: Image) -> Sandbox:
        """Give the sandbox, with the image's files and settings."""
        record = self._record
        has_other_path = record.template_envs.get("PATH") != image.env.get("PATH")
        if record.layers != image.layers or has_other_path:
            await self.restart()
        record.layers, record.template_envs = image.layers, dict(image.env)
        record.user, record.workdir = image.user, image.workdir
        if self._sandbox is None:
            self._sandbox = await self._start()
        return self._sandbox

    async def take_changes(self, image: Image) -> Image:
        """Make what has changed in the sandbox the image's topmost layer."""
        if self._sandbox is None or not has_changes(self._changes):
            return image
        # What a step left running must not write while its files are read.
        await self._containers.freeze(self._record)
        fill = partial(copy_changes, self._changes)
        with self._capacity.reserve(disk=self._disk.stat().st_blocks * _BLOCK):
            layer = await self._images.add_layer(self._next_layer, fill)
        self._next_layer = token_hex(16)
        return replace(image, layers=(*image.layers, layer))

    async def restart(self) -> None:
        """End all that runs in the sandbox, and let go of what has changed in it."""
        if self._sandbox is not None:
            self._sandbox.close("the build goes on")
            self._sandbox = None
            await self._containers.stop(self._record)
            self._disk.unlink()

    async def close(self) -> None:
        """Leave nothing of the sandbox behind, even where the build is being cancelled."""
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
