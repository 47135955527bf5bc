from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sandbox_engine.builds.expansion import expand
from sandbox_engine.builds.log import BuildLog, Level
from sandbox_engine.builds.plan import BuildPlan, Step, StepKind
from sandbox_engine.errors import BuildFailed, EngineError, NotImplementedHere, StepFailed
from sandbox_engine.images.bases import Bases
from sandbox_engine.images.image import Image

FindFiles = Callable[[str], Path]


class Builder:
    """Turns plans into images."""

    def __init__(self, *, bases: Bases) -> None:
        self._bases = bases

    async def build(self, plan: BuildPlan, *, files: FindFiles, log: BuildLog) -> Image:  # noqa: ARG002
        """Carry out the plan; `files` gives the archive that was uploaded under a hash.

        It may be cancelled. However it ends, nothing is left behind but layers that a later build
        may start from.
        """
        image = await self._base(plan, log)
        for number, step in enumerate(plan.steps, start=1):
            log.append(Level.INFO, f"[builder {number}/{len(plan.steps)}] {step}", step=str(number))
            image = _apply(image, step, number=number)
        return image

    async def _base(self, plan: BuildPlan, log: BuildLog) -> Image:
        if plan.from_template is not None:
            log.append(Level.INFO, f"[base] FROM TEMPLATE {plan.from_template.name}", step="base")
            return plan.from_template.image
        log.append(Level.INFO, f"[base] FROM {plan.from_image}", step="base")

        def say(text: str) -> None:
            log.append(Level.INFO, f"[base] {text}", step="base")

        try:
            return await self._bases.provide(plan.from_image, credentials=plan.credentials, say=say)
        except BuildFailed:
            raise
        except EngineError as error:
            raise StepFailed("base", str(error)) from error


def _apply(image: Image, step: Step, *, number: int) -> Image:
    if step.kind not in (StepKind.ENV, StepKind.ARG):
        raise NotImplementedHere(f"The build step {step.kind}")
    if not step.args or len(step.args) % 2:
        raise StepFailed(str(number), f"{step.kind} needs a value for each name")
    names, values = step.args[::2], step.args[1::2]
    given = {name: expand(value, image.env) for name, value in zip(names, values, strict=True)}
    return replace(image, env={**image.env, **given})
