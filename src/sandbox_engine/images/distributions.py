import time
from pathlib import Path

from sandbox_engine.images.furnish import furnish
from sandbox_engine.images.layers import shift_ownership
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.scratch import Scratch, to_its_end
from sandbox_engine.images.sources import Progress, bootstrap


async def make_base(
    scratch: Scratch, recipe: BaseRecipe, *, uid_base: int, progress: Progress
) -> Path:
    """Build the tree of the machine's own base image."""
    progress = _timed(progress)
    tree = await bootstrap(recipe, scratch.path, lock=scratch.lock, progress=progress)
    progress("adding Node.js and npm")

    def complete() -> None:
        furnish(tree, recipe)
        shift_ownership(tree, uid_base=uid_base)

    await to_its_end(complete)
    return tree


def _timed(progress: Progress) -> Progress:
    start = time.monotonic()
    return lambda phase: progress(f"base image: {phase} ({time.monotonic() - start:.0f} s)")
