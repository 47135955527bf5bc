import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ValidationError

from sandbox_engine.images.image import Image
from sandbox_engine.images.store import ImageStore
from sandbox_engine.templates.building.plan import StartCommands, Step

_REVISION = 1  # incremented when the meaning of a step changes, which invalidates the cache


class CachedStep(BaseModel):
    """Result of a step: layers and settings of the image."""

    layers: tuple[str, ...]
    env: Mapping[str, str]
    user: str
    workdir: str


def step_key(image: Image, step: Step) -> str:
    """Return the cache key of a step: its base and its instruction."""
    return _key(image, step.kind, *step.args, step.files_hash)


def start_key(image: Image, commands: StartCommands) -> str:
    """Return the cache key of a verified start."""
    return _key(image, "START", commands.start, commands.ready)


def _key(image: Image, *what: str) -> str:
    layers = [layer.name for layer in image.layers]
    settings = (sorted(image.env.items()), image.user, image.workdir)
    text = json.dumps((_REVISION, layers, settings, what))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class StepCache:
    """Results of earlier build steps; one small file each."""

    def __init__(self, directory: Path, images: ImageStore) -> None:
        self._directory = directory
        self._images = images
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def find(self, key: str) -> Image | None:
        """Find the result for this key if all its layers exist."""
        path = self._directory / key
        if (step := _read(path)) is None:
            return None
        layers = [self._images.find_layer(name) for name in step.layers]
        if None in layers:
            return None
        os.utime(path)
        found = tuple(layer for layer in layers if layer is not None)
        return Image(found, dict(step.env), step.user, step.workdir)

    def keep(self, key: str, image: Image) -> None:
        """Store the result of a step."""
        step = CachedStep(
            layers=tuple(layer.name for layer in image.layers),
            env=image.env,
            user=image.user,
            workdir=image.workdir,
        )
        fresh = self._directory / f"{key}.new"
        fresh.write_text(step.model_dump_json())
        fresh.rename(self._directory / key)

    def layers(self) -> Iterator[Path]:
        """List the layers of all cached steps."""
        for path in self._directory.iterdir():
            if (step := _read(path)) is not None:
                found = (self._images.find_layer(name) for name in step.layers)
                yield from (layer for layer in found if layer is not None)

    def forget_unused(self, since: timedelta) -> None:
        """Remove steps that were not used for this long."""
        oldest = time.time() - since.total_seconds()
        for path in list(self._directory.iterdir()):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _read(path: Path) -> CachedStep | None:
    try:
        return CachedStep.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
