import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex

from sandbox_engine.container.snapshot_bases import SnapshotBases
from sandbox_engine.images.bases.bases import BaseImages
from sandbox_engine.images.image import Image
from sandbox_engine.images.store import ImageStore
from sandbox_engine.templates.building.layer_capture import copy_changes
from sandbox_engine.templates.building.plan import BuildPlan


class BaseResolver:
    """Resolves the base of a plan: a registry image, a template or a snapshot."""

    def __init__(
        self, *, bases: BaseImages, images: ImageStore, snapshot_bases: SnapshotBases
    ) -> None:
        self._bases = bases
        self._images = images
        self._snapshot_bases = snapshot_bases

    async def resolve(self, plan: BuildPlan, *, report: Callable[[str], None]) -> Image:
        """Return the image for the plan's first step."""
        template = plan.from_template
        if template is None:
            report(f"FROM {plan.from_image}")
            return await self._bases.provide(
                plan.from_image, credentials=plan.credentials, report=report
            )
        report(f"FROM TEMPLATE {template.name}")
        if template.base is None:
            return template.image
        return await self._with_snapshot(template.image, template.base)

    async def _with_snapshot(self, image: Image, snapshot: str) -> Image:
        """Copy the files of a snapshot into layers: the image must outlive the snapshot."""
        holder = f"build-{token_hex(8)}"
        try:
            disks = await self._snapshot_bases.acquire(snapshot, holder=holder)
            layers = [await self._layer(upper) for upper in disks]
        finally:
            await self._snapshot_bases.release(holder)
        return replace(image, layers=(*image.layers, *layers))

    async def _layer(self, upper: Path) -> Path:
        # A snapshot's disk never changes, so its path identifies its content.
        digest = hashlib.sha256(os.fsencode(upper)).hexdigest()[:32]
        return await self._images.add_layer(digest, partial(copy_changes, upper))
