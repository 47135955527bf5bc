import asyncio
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sandbox_engine.images.claims import Claims
from sandbox_engine.images.furnish import furnish
from sandbox_engine.images.image import Image
from sandbox_engine.images.layers import shift_ownership
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.sources import Progress, bootstrap
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.syscalls import syncfs

_LOCK_POLL_S = 0.1


class ImageStore:
    """The images of one directory, which engines may share.

    layers/<digest>/    a complete tree with shifted ownership, moved here when it was finished
    building/           what is being built, or what is left of a build that was interrupted
    claims/<key>.json   the layers that an engine needs
    lock                held by whoever changes any of this
    """

    def __init__(self, directory: Path, *, owner: Path, uid_base: int = UID_BASE) -> None:
        self._layers = directory / "layers"
        self._building = directory / "building"
        self._lock = directory / "lock"
        self._uid_base = uid_base
        directory.mkdir(parents=True, exist_ok=True)
        # Setuid programs of a layer are some account's on this machine too: nobody may reach them.
        directory.chmod(0o700)
        self._layers.mkdir(exist_ok=True)
        self._building.mkdir(exist_ok=True)
        self._claims = Claims(directory / "claims", owner=owner)

    async def ensure_base(self, *, recipe: BaseRecipe, progress: Progress) -> Image:
        """Give the image of this recipe, which is built where no engine has built it yet."""
        layer = self._layers / recipe.digest
        async with self._locked(progress) as lock:
            await asyncio.to_thread(self._discard_unfinished)
            self._claims.replace({*self._claims.own(), recipe.digest})
            if not layer.exists():
                await self._build(recipe, layer, lock=lock, progress=progress)
        return Image((layer,), recipe.env)

    async def remove_unused(self, used: Iterable[Path]) -> None:
        """Remove the layers that no engine needs; `used` are all that this one does."""
        async with self._locked():
            self._claims.replace(layer.name for layer in used)
            claimed = self._claims.all()
            for layer in list(self._layers.iterdir()):
                if layer.name not in claimed:
                    layer.rename(self._building / layer.name)
            await asyncio.to_thread(self._discard_unfinished)

    async def _build(
        self, recipe: BaseRecipe, layer: Path, *, lock: int, progress: Progress
    ) -> None:
        directory = Path(tempfile.mkdtemp(dir=self._building))
        progress = _timed(progress)
        try:
            tree = await bootstrap(recipe, directory, lock=lock, progress=progress)
            progress("adding Node.js and npm")
            await _to_its_end(partial(self._complete, tree, recipe, layer))
        finally:
            await asyncio.to_thread(self._discard_unfinished)

    def _complete(self, tree: Path, recipe: BaseRecipe, layer: Path) -> None:
        furnish(tree, recipe)
        shift_ownership(tree, uid_base=self._uid_base)
        _write_out(tree)
        tree.rename(layer)

    def _discard_unfinished(self) -> None:
        for path in self._building.iterdir():
            shutil.rmtree(path)

    @asynccontextmanager
    async def _locked(self, progress: Progress | None = None) -> AsyncIterator[int]:
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _is_acquired(descriptor) and progress is not None:
                progress("waiting for another engine that builds the base image")
            # Polled, since a thread that waits in flock(2) could not be cancelled.
            while not _is_acquired(descriptor):  # noqa: ASYNC110
                await asyncio.sleep(_LOCK_POLL_S)
            yield descriptor
        finally:
            os.close(descriptor)


def _is_acquired(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _timed(progress: Progress) -> Progress:
    start = time.monotonic()
    return lambda phase: progress(f"base image: {phase} ({time.monotonic() - start:.0f} s)")


async def _to_its_end(work: Callable[[], None]) -> None:
    """Run in a thread, and wait for it even when cancelled: what it works on is removed next."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise


def _write_out(tree: Path) -> None:
    """Put the tree on the disk itself: renaming promises nothing of the files' contents."""
    descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syncfs(descriptor)
    finally:
        os.close(descriptor)
