import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sandbox_engine.container import disk
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.file_threads import FileThreads
from sandbox_engine.system.private_files import flush
from sandbox_engine.system.subprocesses import Runner
from sandbox_engine.volumes.record import VolumeRecord

# The default account of images. All other users of a sandbox may write too.
DEFAULT_ID = 1000
DIRECTORY_MODE = 0o777


class Volume:
    """A file system that is mounted while it is in use.

    `keepers` are the sandboxes that have it mounted when they run.
    """

    def __init__(self, record: VolumeRecord, directory: Path) -> None:
        self.record = record
        self.keepers: set[str] = set()
        self.workers = FileThreads()
        self.ending = asyncio.Lock()
        self.image = directory / "volume.img"
        self._place = directory / "content"
        self._users: set[object] = set()
        self._lock = asyncio.Lock()
        self._root: Root | None = None

    @property
    def is_used(self) -> bool:
        return bool(self._users)

    def has_user(self, user: object) -> bool:
        return user in self._users

    async def make(self, run: Runner) -> None:
        """Create an empty file system, writable for all users of sandboxes."""
        self._place.mkdir(mode=0o700)
        await disk.make(self.image, size_mb=self.record.size_mb, run=run)
        await self.acquire(self)
        try:
            await self.workers.run(self._initialize)
        finally:
            await self.release(self)
        await self.workers.run(partial(flush, self.image))

    async def acquire(self, user: object) -> Path:
        """Mount it for this user; returns the mount point."""
        is_new = user not in self._users
        self._users.add(
            user
        )  # before the first wait: a deleted volume is removed when it has no user
        try:
            async with self._lock:
                if not os.path.ismount(self._place):
                    await self.workers.run(self._mount)
        except BaseException:
            if is_new:
                self._users.discard(user)
            raise
        return self._place

    async def release(self, user: object) -> None:
        """Release it; unmounts after the last user."""
        async with self._lock:
            self._users.discard(user)
            if not self._users:
                await self.workers.run(self._unmount)

    async def unmount(self) -> None:
        """Unmount it, even if an earlier engine mounted it."""
        async with self._lock:
            await self.workers.run(self._unmount)

    def note_user(self, user: object) -> None:
        """Register a user that mounted it before the engine started."""
        self._users.add(user)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Root]:
        """Keep it open for file operations from outside."""
        user = object()
        place = await self.acquire(user)
        try:
            if self._root is None:
                self._root = Root.at(str(place))
            yield self._root
        finally:
            await self.release(user)

    def _mount(self) -> None:
        # A sandbox that is ending may still use it.
        disk.attach(self.image, self._place, again=True)

    def _unmount(self) -> None:
        if self._root is not None:
            self._root.close()
            self._root = None
        disk.detach(self._place)

    def _initialize(self) -> None:
        (self._place / "lost+found").rmdir()
        self._place.chmod(DIRECTORY_MODE)
        os.chown(self._place, UID_BASE + DEFAULT_ID, UID_BASE + DEFAULT_ID)
