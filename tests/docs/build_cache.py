"""The engine's cache of build steps, kept between runs of the tests.

The real template `agent` takes most of a minute to build, nearly all of it for packages that change seldom. An engine
with the steps of an earlier run builds only what has changed since.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_engine.images.claims import Claims
from sandbox_engine.templates.building.step_cache import CachedStep
from tests.engine.engine_process import IMAGES, REPOSITORY

KEPT = REPOSITORY / ".cache" / "agent-template"


@contextmanager
def kept_build_cache(engine_dir: Path) -> Iterator[Path]:
    """Lend the kept steps to an engine that is not started yet. Keep its own when the block has succeeded."""
    used = engine_dir / "build-cache"
    steps = KEPT / "steps"
    steps.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once would build the same twice
        shutil.copytree(steps, used)
        lent = {step.name: step.stat().st_mtime_ns for step in used.iterdir()}
        yield used
        _keep([step for step in used.iterdir() if step.stat().st_mtime_ns != lent.get(step.name)])


def _keep(steps: list[Path]) -> None:
    """Replace the kept steps by these, so that what no build uses any more goes with its layers."""
    cached = [CachedStep.model_validate_json(step.read_bytes()) for step in steps]
    # While the engine that built the layers lives they are its own too, and nobody removes them.
    Claims(IMAGES / "claims", owner=KEPT).replace({name for step in cached for name in step.layers})
    shutil.rmtree(KEPT / "steps")
    (KEPT / "steps").mkdir()
    for step in steps:
        shutil.copy2(step, KEPT / "steps")
