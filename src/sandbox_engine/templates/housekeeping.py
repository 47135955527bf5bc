import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from sandbox_engine.images.store import ImageStore
from sandbox_engine.system.log import get_logger
from sandbox_engine.templates.building.builder import Builder
from sandbox_engine.templates.templates import Templates

log = get_logger(__name__)

_EVERY = timedelta(hours=1)
_WHEN_BUSY = timedelta(minutes=1)


class _Building(Exception):
    pass


class Housekeeping:
    """Removes unused uploads, cached steps and layers."""

    def __init__(
        self,
        images: ImageStore,
        builder: Builder,
        templates: Templates,
        *,
        layers_in_use: Callable[[], Iterable[Path]],
    ) -> None:
        self._images = images
        self._builder = builder
        self._templates = templates
        self._layers_in_use = layers_in_use

    async def run(self) -> None:
        """Run periodically until cancelled."""
        pause = _EVERY
        while True:
            await asyncio.sleep(pause.total_seconds())
            try:
                pause = _EVERY if await self.tidy() else _WHEN_BUSY
            except OSError:
                log.exception("removing unused files failed")

    async def tidy(self) -> bool:
        """Remove unused files; layers only while no build runs."""
        self._templates.uploads.remove_old()
        self._builder.forget_unused()
        try:
            await self._images.remove_unused(self._used)
        except _Building:
            return False
        return True

    def _used(self) -> Iterable[Path]:
        # A build that has just begun may depend on layers that it does not report yet.
        if self._templates.builds.are_under_way:
            raise _Building
        return self._layers_in_use()
