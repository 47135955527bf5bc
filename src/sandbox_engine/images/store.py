import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from sandbox_engine.images.claims import Claims
from sandbox_engine.images.scratch import (
    Scratch,
    discard_abandoned,
    is_locked,
    run_to_completion,
)
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.syscalls import syncfs

_LOCK_POLL_S = 0.1

MakeTree = Callable[[Scratch], Awaitable[Path]]


class ImageStore:
    """The layers of one directory, which engines may share.

    layers/<digest>/    a complete tree with shifted ownership, moved here when it was finished
    building/<digest>/  what a layer is being made from, or what an interrupted making has left
    claims/<key>.json   the layers that an engine needs
    lock                held while the claims are changed or a layer is removed
    """

    def __init__(self, directory: Path, *, owner: Path, uid_base: int = UID_BASE) -> None:
        self.directory = directory
        self.uid_base = uid_base
        self._layers = directory / "layers"
        self._building = directory / "building"
        self._lock = directory / "lock"
        directory.mkdir(parents=True, exist_ok=True)
        # Setuid programs of a layer belong to accounts of this machine too: no access for others.
        directory.chmod(0o700)
        self._layers.mkdir(exist_ok=True)
        self._building.mkdir(exist_ok=True)
        self._claims = Claims(directory / "claims", owner=owner)
        self._held = Counter[str]()

    def find_layer(self, digest: str) -> Path | None:
        """Find a complete layer; unless claimed, other engines may remove it."""
        layer = self._layers / digest
        return layer if layer.is_dir() else None

    @contextmanager
    def hold(self, digest: str) -> Iterator[None]:
        """Keep the layer while a build derives another one from it."""
        self._held[digest] += 1
        try:
            yield
        finally:
            self._held[digest] -= 1

    async def claim(self, digests: Iterable[str]) -> bool:
        """Claim layers, so that other engines keep them; returns whether all exist."""
        digests = set(digests)
        if not digests <= self._claims.own():
            async with self._locked():
                self._claims.replace(digests | self._claims.own())
        return all(self.find_layer(digest) for digest in digests)

    async def add_layer(self, digest: str, fill: Callable[[Path], None]) -> Path:
        """Return the claimed layer of this digest, written by `fill` if it does not exist.

        `fill` runs in a thread, is never interrupted, and writes files with shifted owners.
        """

        async def make(scratch: Scratch) -> Path:
            tree = scratch.path / "tree"
            tree.mkdir(mode=0o755)
            os.chown(tree, self.uid_base, self.uid_base)
            await run_to_completion(partial(fill, tree))
            return tree

        return await self.make_layer(digest, make)

    async def make_layer(
        self, digest: str, make: MakeTree, *, on_wait: Callable[[], None] = lambda: None
    ) -> Path:
        """Return the claimed layer of this digest; `make` builds its tree in the scratch directory.

        Concurrent requests for the same layer, also of other engines, wait for this one.
        """
        layer = self._layers / digest
        if await self.claim([digest]):
            return layer
        async with self._scratch(digest, on_wait=on_wait) as scratch:
            if not layer.exists():
                tree = await make(scratch)
                await run_to_completion(partial(_move_into_place, tree, layer))
        return layer

    async def remove_unused(self, used: Callable[[], Iterable[Path]]) -> None:
        """Remove layers that no engine needs; `used` returns those of this engine.

        It is called when no more claims are possible, so that none is missed.
        """
        await run_to_completion(partial(discard_abandoned, self._building))
        async with self._locked():
            held = (digest for digest, holders in self._held.items() if holders)
            self._claims.replace((*(layer.name for layer in used()), *held))
            claimed = self._claims.all()
            trash = Scratch.fresh(self._building)
            for layer in list(self._layers.iterdir()):
                if layer.name not in claimed:
                    layer.rename(trash.path / layer.name)
        await run_to_completion(trash.discard)

    @asynccontextmanager
    async def temporary_directory(self) -> AsyncIterator[Scratch]:
        """Provide a directory for temporary work; removed at the end."""
        scratch = Scratch.fresh(self._building)
        try:
            yield scratch
        finally:
            await run_to_completion(scratch.discard)

    @asynccontextmanager
    async def _scratch(self, digest: str, *, on_wait: Callable[[], None]) -> AsyncIterator[Scratch]:
        path = self._building / digest
        scratch = Scratch.find_free(path)
        if scratch is None:
            on_wait()
        # Polling, since a thread waiting in flock(2) cannot be cancelled.
        while scratch is None:
            await asyncio.sleep(_LOCK_POLL_S)
            scratch = Scratch.find_free(path)
        try:
            await run_to_completion(scratch.clear)
            yield scratch
        finally:
            await run_to_completion(scratch.discard)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with closing(os.open(self._lock, flags, 0o600)) as descriptor:
            while not is_locked(descriptor):  # noqa: ASYNC110
                await asyncio.sleep(_LOCK_POLL_S)
            yield


def _move_into_place(tree: Path, layer: Path) -> None:
    # Flushed first: rename does not guarantee the files' contents.
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with closing(os.open(tree, flags)) as descriptor:
        syncfs(descriptor)
    tree.rename(layer)
