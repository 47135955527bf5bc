import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sandbox_engine.images.bases.bases import BaseImages
from sandbox_engine.images.image import Image
from sandbox_engine.images.store import ImageStore
from sandbox_engine.records.catalog import Template
from sandbox_engine.sandboxes.infrastructure import Infrastructure
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.new_sandbox import NewSandbox, new_record
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.system.errors import BuildFailed
from sandbox_engine.system.settings import Settings
from sandbox_engine.templates.building.base_resolution import BaseResolver
from sandbox_engine.templates.building.build import Build
from sandbox_engine.templates.building.build_sandbox import BuildSandbox
from sandbox_engine.templates.building.log import BuildLog, Level
from sandbox_engine.templates.building.plan import BuildPlan
from sandbox_engine.templates.building.step_cache import StepCache
from sandbox_engine.templates.building.steps import FindFiles

_NAME = "build"


class Builder:
    """Builds images from plans, with a limit of concurrent builds."""

    def __init__(
        self,
        settings: Settings,
        infrastructure: Infrastructure,
        lifecycle: Lifecycle,
        *,
        images: ImageStore,
        bases: BaseImages,
    ) -> None:
        self._settings = settings
        self._infrastructure = infrastructure
        self._lifecycle = lifecycle
        self._images = images
        self._base_resolver = BaseResolver(
            bases=bases, images=images, snapshot_bases=infrastructure.snapshot_bases
        )
        self._cache = StepCache(settings.state_dir / "build-cache", images)
        self._slots = asyncio.Semaphore(settings.max_builds)
        self._under_way: set[Build] = set()
        self._build_sandboxes: set[BuildSandbox] = set()

    async def build(self, plan: BuildPlan, *, files: FindFiles, log: BuildLog) -> Image:
        """Run the plan; `files` returns the uploaded archive of a hash.

        May be cancelled. In any case only layers for later builds remain.
        """
        begun = time.monotonic()
        build_sandbox = self._build_sandbox(plan)
        self._build_sandboxes.add(build_sandbox)
        try:
            async with self._in_time(build_sandbox):
                image = await self._run(plan, files=files, log=log, build_sandbox=build_sandbox)
        finally:
            self._build_sandboxes.discard(build_sandbox)
            await build_sandbox.close()
        log.append(Level.INFO, f"Build finished, took {time.monotonic() - begun:.0f}s")
        return image

    def running(self) -> Iterator[Sandbox]:
        """List the sandboxes of running builds."""
        for build_sandbox in self._build_sandboxes:
            if build_sandbox.sandbox is not None:
                yield build_sandbox.sandbox

    async def pause_if_running(self, sandbox_id: str, reason: str) -> None:
        """Make the build of this sandbox fail."""
        for build_sandbox in self._build_sandboxes:
            if build_sandbox.sandbox is not None and build_sandbox.sandbox.id == sandbox_id:
                build_sandbox.cancel(reason)

    def forget_unused(self) -> None:
        """Remove cached steps that were not used for long."""
        self._cache.forget_unused(self._settings.build_cache_age)

    def layers(self) -> Iterator[Path]:
        """Layers of running builds and of cached steps."""
        yield from self._cache.layers()
        for build in self._under_way:
            yield from build.layers

    async def _run(
        self, plan: BuildPlan, *, files: FindFiles, log: BuildLog, build_sandbox: BuildSandbox
    ) -> Image:
        build = Build(
            plan,
            files=files,
            log=log,
            base_resolver=self._base_resolver,
            cache=self._cache,
            build_sandbox=build_sandbox,
            start_timeout=self._settings.start_timeout,
        )
        self._under_way.add(build)
        try:
            image = await build.run()
            if not await self._images.claim(layer.name for layer in image.layers):
                raise BuildFailed("a layer of the image was removed")
            return image
        finally:
            self._under_way.discard(build)

    @asynccontextmanager
    async def _in_time(self, build_sandbox: BuildSandbox) -> AsyncIterator[None]:
        """Limit the time of a build from its sandbox's first start; queueing does not count."""
        longest = self._settings.build_timeout.total_seconds()
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(None) as limit:
                build_sandbox.on_open(lambda: limit.reschedule(clock() + longest))
                build_sandbox.on_cancelled(partial(_expire, limit))
                yield
        except TimeoutError:
            timed_out = f"build timed out after {longest / 60:g} minutes"
            raise BuildFailed(build_sandbox.cancel_reason or timed_out) from None

    def _build_sandbox(self, plan: BuildPlan) -> BuildSandbox:
        template = Template(
            _NAME, _NAME, Image(()), cpu_count=plan.cpu_count, memory_mb=plan.memory_mb
        )
        request = NewSandbox(_NAME, timeout=self._settings.build_timeout)
        return BuildSandbox(
            new_record(request, template, settings=self._settings),
            infrastructure=self._infrastructure,
            lifecycle=self._lifecycle,
            images=self._images,
            slots=self._slots,
        )


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())
