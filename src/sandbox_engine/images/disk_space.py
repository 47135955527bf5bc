import asyncio
import os
import time
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

from sandbox_engine.machine.resources import MIB
from sandbox_engine.system.errors import ImageRefused, NoRoomForImage

_KEPT_FREE_INODES = 50_000
_LOOK_EVERY_S = 1.0
_SHARE_OF_LOOKING = 0.1


@dataclass(frozen=True)
class DiskSpace:
    """Disk space for unpacked images, with a reserve that stays free."""

    directory: Path
    limit: int
    kept_free: int

    def require(self, size: int) -> None:
        """Reject an image that exceeds the limit or the free disk space."""
        if size > self.limit:
            raise self.too_large()
        there = os.statvfs(self.directory)
        bytes_free = there.f_bavail * there.f_frsize
        inodes_scarce = there.f_files > 0 and there.f_favail < _KEPT_FREE_INODES
        if bytes_free - size < self.kept_free or inodes_scarce:
            raise NoRoomForImage(
                f"Not enough space for the image: the disk has {bytes_free // MIB} MiB and "
                f"{there.f_favail} files left."
            )

    def too_large(self) -> ImageRefused:
        return ImageRefused(f"The image is larger than {self.limit // MIB} MiB.")

    async def measure(self, directory: Path) -> None:
        """Reject an image that exceeds the limit."""
        if await _size(directory) > self.limit:
            raise self.too_large()

    async def watch(self, directory: Path) -> None:
        """Check the size repeatedly while files are written; raises when it is exceeded."""
        pause = _LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause)
            start = time.monotonic()
            await self.measure(directory)
            self.require(0)
            pause = max(_LOOK_EVERY_S, (time.monotonic() - start) / _SHARE_OF_LOOKING)


async def _size(directory: Path) -> int:
    process = await asyncio.create_subprocess_exec(
        "du", "--summarize", "--block-size=1", str(directory),
        stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # Files appear and disappear during the scan, which then exits with an error status.
    return int(output.split(maxsplit=1)[0])
