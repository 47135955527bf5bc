from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sandbox_engine.commands.spool import Stream
from sandbox_engine.commands.transcript import OnLine, StopReading
from sandbox_engine.images.image import Image
from sandbox_engine.sandboxes.start_command import run_start_command
from sandbox_engine.system.errors import EngineError, StepFailed
from sandbox_engine.templates.building import steps
from sandbox_engine.templates.building.base_resolution import BaseResolver
from sandbox_engine.templates.building.build_sandbox import BuildSandbox
from sandbox_engine.templates.building.copy_step import copy
from sandbox_engine.templates.building.log import BuildLog, Level
from sandbox_engine.templates.building.plan import BuildPlan, Step, StepKind
from sandbox_engine.templates.building.step_cache import StepCache, start_key, step_key
from sandbox_engine.templates.building.steps import (
    FindFiles,
    StepContext,
    StepProblem,
    set_environment,
)

_SETTINGS = {StepKind.ENV, StepKind.ARG}
_IN_SANDBOX: Mapping[StepKind, Callable[[Step, StepContext], Awaitable[Image]]] = {
    StepKind.RUN: steps.run,
    StepKind.COPY: copy,
    StepKind.WORKDIR: steps.change_workdir,
    StepKind.USER: steps.change_user,
}
_BASE = "base"
_MOST_LINES = 5_000  # of one step
_FINALIZE = "finalize"


class Build:
    """One run of a plan, from its base to an image whose sandboxes start."""

    def __init__(
        self,
        plan: BuildPlan,
        *,
        files: FindFiles,
        log: BuildLog,
        base_resolver: BaseResolver,
        cache: StepCache,
        build_sandbox: BuildSandbox,
        start_timeout: timedelta,
    ) -> None:
        self._plan = plan
        self._files = files
        self._log = log
        self._base_resolver = base_resolver
        self._cache = cache
        self._build_sandbox = build_sandbox
        self._start_timeout = start_timeout
        self._image = Image(())

    @property
    def layers(self) -> Sequence[Path]:
        """Layers in use by this build."""
        return (*self._image.layers, self._build_sandbox.next_layer)

    async def run(self) -> Image:
        """Run a step unless its result is cached."""
        with self._of_step(_BASE):
            self._image = await self._base_resolver.resolve(
                self._plan, report=lambda text: self._say(f"[base] {text}", _BASE)
            )
        is_forced = self._plan.force
        for number, step in enumerate(self._plan.steps, start=1):
            is_forced |= step.force
            with self._of_step(str(number)):
                self._image = await self._step(number, step, is_forced=is_forced)
        with self._of_step(_FINALIZE):
            await self._finalize(is_forced=is_forced)
        return self._image

    async def _step(self, number: int, step: Step, *, is_forced: bool) -> Image:
        prefix = f"builder {number}/{len(self._plan.steps)}"
        key = step_key(self._image, step)
        if not is_forced and (known := self._cache.find(key)) is not None:
            self._say(f"CACHED [{prefix}] {step} [{key}]", str(number))
            return known
        self._say(f"[{prefix}] {step} [{key}]", str(number))
        if step.kind in _SETTINGS:
            return set_environment(step, self._image)
        image = await self._carry_out(step, prefix=prefix, number=str(number))
        self._cache.keep(key, image)
        return image

    async def _carry_out(self, step: Step, *, prefix: str, number: str) -> Image:
        report = self._output(prefix, number)
        sandbox = await self._build_sandbox.use_image(self._image)
        site = StepContext(sandbox, self._image, self._files, report)
        image = await self._build_sandbox.capture_layer(await _IN_SANDBOX[step.kind](step, site))
        if step.kind is StepKind.RUN:  # background processes end with the step
            await self._build_sandbox.restart()
        return image

    async def _finalize(self, *, is_forced: bool) -> None:
        """Start a sandbox of the image to verify it, unless cached."""
        commands = self._plan.commands
        self._say("[finalize] Finalizing template build", _FINALIZE)
        if not (commands.start or commands.ready):
            return
        key = start_key(self._image, commands)
        if is_forced or self._cache.find(key) is None:
            self._say(f"[finalize] Running start command: {commands.start}", _FINALIZE)
            self._say(f"[finalize] Waiting for template to be ready: {commands.ready}", _FINALIZE)
            sandbox = await self._build_sandbox.use_image(self._image)
            sandbox.record.start_command = commands.start
            sandbox.record.ready_command = commands.ready
            output = self._output("start", _FINALIZE)
            await run_start_command(sandbox, timeout=self._start_timeout, on_line=output)
            self._cache.keep(key, self._image)
        self._say("[finalize] Template is ready", _FINALIZE)

    @contextmanager
    def _of_step(self, step: str) -> Iterator[None]:
        try:
            yield
        except (EngineError, StepProblem) as error:
            raise StepFailed(step, str(error)) from error
        except OSError as error:
            raise StepFailed(step, f"its files could not be saved: {error.strerror}") from error

    def _output(self, prefix: str, step: str) -> OnLine:
        """Log a command's output up to a limit."""
        numbers = iter(range(_MOST_LINES))

        def report(stream: Stream, line: str) -> None:
            if not line.strip():
                return
            if next(numbers, None) is None:
                text = f"[{prefix}] wrote {_MOST_LINES} lines; further output is not logged"
                self._log.append(Level.WARN, text, step=step)
                raise StopReading
            self._say(f"[{prefix}] [{stream}]: {line}", step)

        return report

    def _say(self, message: str, step: str) -> None:
        self._log.append(Level.INFO, message, step=step)
