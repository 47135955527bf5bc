import time
from functools import partial
from pathlib import Path

from sandbox_engine.images import node
from sandbox_engine.images.bases.distributions import Distribution
from sandbox_engine.images.bases.node_releases import fetch_release
from sandbox_engine.images.bases.packages import configure_tree
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.layers import shift_ownership
from sandbox_engine.images.node import NodeRelease
from sandbox_engine.images.scratch import Scratch, run_to_completion
from sandbox_engine.images.sources import Progress, bootstrap
from sandbox_engine.rootfs.ownership import UID_BASE


async def make_distribution(
    scratch: Scratch, distribution: Distribution, *, room: DiskSpace, progress: Progress
) -> Path:
    """Build the tree of an image from packages."""
    progress = _timed(progress)
    release = None
    if distribution.node is not None:
        progress("adding Node.js and npm")
        release = await _release(scratch, distribution.node, room=room)
    recipe = distribution.recipe
    tree = await bootstrap(recipe, scratch.path, lock=scratch.lock, progress=progress)
    await run_to_completion(partial(_complete, tree, distribution, release))
    return tree


async def _release(scratch: Scratch, wanted: str, *, room: DiskSpace) -> NodeRelease:
    if node.is_own(wanted):
        return node.own_release()
    return await fetch_release(scratch, wanted, room=room)


def _complete(tree: Path, distribution: Distribution, release: NodeRelease | None) -> None:
    configure_tree(tree, distribution.recipe, node=release)
    shift_ownership(tree, uid_base=UID_BASE)


def _timed(progress: Progress) -> Progress:
    start = time.monotonic()
    return lambda phase: progress(f"base image: {phase} ({time.monotonic() - start:.0f} s)")
