import errno
import os
from collections.abc import Callable
from pathlib import Path

from sandbox_engine.system import loop_devices
from sandbox_engine.system.sparse_files import copy_data
from sandbox_engine.system.subprocesses import Runner
from sandbox_engine.system.syscalls import (
    MNT_DETACH,
    MS_NOATIME,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    mount,
    unmount,
)

# Direct I/O keeps the image out of the page cache (the mounted file system has its own); discard
# returns the space of deleted files to the host.
_MOUNT_OPTIONS = "discard,noinit_itable,errors=remount-ro"

MKFS = (
    "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=4",
    "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
    "-O", "^resize_inode,sparse_super2", "-i", "16384",
)  # fmt: skip


async def make(image: Path, *, size_mb: int, run: Runner) -> None:
    """Create a sparse image with an empty file system of this size."""
    with image.open("wb") as file:
        os.ftruncate(file.fileno(), size_mb << 20)
    made = await run([*MKFS, str(image)])
    if made.returncode != 0:
        raise OSError(made.stderr.decode(errors="replace"))


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file, keeping its holes."""
    with source.open("rb") as reader, target.open("xb") as writer:
        copy_data(reader.fileno(), writer.fileno())


def attach(image: Path, mountpoint: Path, *, again: bool = False) -> None:
    """Mount a file system image; the loop device is removed with the mount.

    Pass `again` for an image that may still be mounted: it reuses the loop device. A second device
    would corrupt the image.
    """
    with image.open("r+b") as backing:
        found = loop_devices.find(image) if again else None
        device, path = found or loop_devices.set_up(backing.fileno(), loop_devices.DIRECT_IO)
        _mount(device, path, mountpoint, options=_MOUNT_OPTIONS)


def attach_read_only(image: Path, mountpoint: Path) -> None:
    """Mount a file system image read-only; replays its journal first."""
    with image.open("r+b") as backing:
        device, path = loop_devices.set_up(backing.fileno())
        _mount(device, path, mountpoint, flags=MS_RDONLY)


def attach_filled(image: Path, mountpoint: Path, *, size: int, fill: Callable[[int], None]) -> None:
    """Mount a new image read-only as soon as `fill` has written it.

    The device is created before: creating one waits until all written data is on the disk.
    """
    with image.open("x+b") as backing:
        os.ftruncate(backing.fileno(), size)
        device, path = loop_devices.set_up(backing.fileno())
        try:
            fill(backing.fileno())
            loop_devices.drop_cached_reads(device)
        except BaseException:
            os.close(device)
            raise
        _mount(device, path, mountpoint, flags=MS_RDONLY)


def _mount(device: int, path: str, mountpoint: Path, *, flags: int = 0, options: str = "") -> None:
    try:
        flags |= MS_NODEV | MS_NOSUID | MS_NOATIME
        mount(path, str(mountpoint), "ext4", flags, options)
    finally:
        os.close(device)


def detach(mountpoint: Path) -> None:
    """Unmount if mounted; the file system stays alive until open files are closed."""
    try:
        unmount(str(mountpoint), MNT_DETACH)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
