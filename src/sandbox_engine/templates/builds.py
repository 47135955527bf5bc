import asyncio
from collections.abc import Iterable

from sandbox_engine.images.image import Image
from sandbox_engine.system.errors import EngineError, InvalidRequest, StepFailed
from sandbox_engine.system.log import get_logger
from sandbox_engine.templates.building.builder import Builder
from sandbox_engine.templates.building.log import BuildLog, Level
from sandbox_engine.templates.building.plan import BuildPlan
from sandbox_engine.templates.library import Library
from sandbox_engine.templates.records import (
    BuildRecord,
    BuildStatus,
    Failure,
    TemplateRecord,
)
from sandbox_engine.templates.store import TemplateStore
from sandbox_engine.templates.uploads import Uploads

log = get_logger(__name__)

_SUPERSEDED = "The build was canceled because it was superseded by a newer one."
_DELETED = "The build was canceled because its template was deleted."
_INTERRUPTED = "The build was interrupted by a restart of the engine."


class Builds:
    """Builds in progress, each running in the background."""

    def __init__(
        self, library: Library, store: TemplateStore, builder: Builder, uploads: Uploads
    ) -> None:
        self._library = library
        self._store = store
        self._builder = builder
        self._uploads = uploads
        self._logs: dict[str, BuildLog] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def are_under_way(self) -> bool:
        return bool(self._running)

    async def settle_interrupted(self) -> None:
        """Mark builds interrupted by the end of an earlier engine as failed."""
        for template in self._library.list_all():
            lost = [build for build in template.builds if build.status is BuildStatus.BUILDING]
            for build in lost:
                build.fail(Failure(message=_INTERRUPTED))
            if lost:
                await self._library.save(template)

    async def start(self, template: TemplateRecord, build: BuildRecord, plan: BuildPlan) -> None:
        """Start a requested build; it replaces an earlier one with the same tags."""
        if build.status is not BuildStatus.WAITING:
            raise InvalidRequest("build is not in waiting state")
        for other in template.builds:
            if set(other.tags) & set(build.tags):
                self._cancel(template, other, _SUPERSEDED)
        build.begin()
        build.start_command, build.ready_command = plan.commands.start, plan.commands.ready
        self._running[build.id] = asyncio.create_task(self._run(template, build, plan))
        self._running[build.id].add_done_callback(lambda _: self._forget(build))
        await self._library.save(template)

    def read_log(self, template: TemplateRecord, build: BuildRecord) -> BuildLog:
        """Return the log of a build."""
        kept = self._logs.get(build.id)
        return kept or BuildLog(self._store.log_path(template.id, build.id))

    async def delete(self, name: str) -> None:
        """Delete a template; cancels its builds."""
        template = self._library.get_changeable(name)
        await self._end([template], _DELETED)
        self._library.delete(template)

    async def close(self) -> None:
        """Cancel all builds."""
        await self._end(self._library.list_all(), _INTERRUPTED)

    async def _end(self, templates: Iterable[TemplateRecord], reason: str) -> None:
        ended = []
        for template in templates:
            for build in template.builds:
                if build.id in self._running:
                    self._cancel(template, build, reason)
                    ended.append(self._running[build.id])
        await asyncio.gather(*ended, return_exceptions=True)

    def _cancel(self, template: TemplateRecord, build: BuildRecord, reason: str) -> None:
        task = self._running.get(build.id)
        if task is not None and build.status is BuildStatus.BUILDING:
            self._settle(template, build, Failure(message=reason))
            task.cancel()

    async def _run(self, template: TemplateRecord, build: BuildRecord, plan: BuildPlan) -> None:
        self._logs[build.id] = self.read_log(template, build)
        outcome = await self._outcome(plan, self._logs[build.id])
        self._settle(template, build, outcome)
        await self._library.save(template)

    def _forget(self, build: BuildRecord) -> None:
        del self._running[build.id]
        self._logs.pop(build.id, None)

    def _settle(
        self, template: TemplateRecord, build: BuildRecord, outcome: Image | Failure
    ) -> None:
        if build.status is not BuildStatus.BUILDING:  # cancelled when it was nearly ready
            return
        if isinstance(outcome, Failure):
            build_log = self.read_log(template, build)
            build_log.append(Level.ERROR, outcome.message, step=outcome.step)
            build.fail(outcome)
        else:
            build.succeed(outcome)
            template.point(build.tags, build)
        log.info("build ended", template=template.id, build=build.id, status=build.status)

    async def _outcome(self, plan: BuildPlan, build_log: BuildLog) -> Image | Failure:
        try:
            return await self._builder.build(plan, files=self._uploads.find, log=build_log)
        except asyncio.CancelledError:
            return Failure(message=_INTERRUPTED)
        except StepFailed as error:
            return Failure(message=str(error), step=error.step)
        except EngineError as error:
            return Failure(message=str(error))
        except Exception:
            log.exception("build failed with an unexpected error")
            return Failure(message="Internal error of the engine; see its log.")
