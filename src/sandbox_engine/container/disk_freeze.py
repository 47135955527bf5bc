import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.system.syscalls import syncfs

_FIFREEZE = 0xC0045877
_FITHAW = 0xC0045878
_LOOP_MAJOR = 7
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def frozen(mountpoint: Path) -> Iterator[None]:
    """Freeze the file system of a mounted disk image, with all written data in the image.

    Does nothing if no image is mounted: then nobody can write.
    """
    with closing(os.open(mountpoint, _DIRECTORY)) as opened:
        if not _is_disk_image(opened, mountpoint):
            yield
            return
        syncfs(opened)  # before writers are frozen, so that little is left to flush while they wait
        fcntl.ioctl(opened, _FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(opened, _FITHAW, 0)


def thaw(mountpoint: Path) -> None:
    """Thaw a file system that a killed engine left frozen."""
    try:
        with closing(os.open(mountpoint, _DIRECTORY)) as opened:
            if _is_disk_image(opened, mountpoint):
                fcntl.ioctl(opened, _FITHAW, 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # EINVAL: not frozen
            raise


def _is_disk_image(opened: int, mountpoint: Path) -> bool:
    """Whether a mounted image is here, not a plain directory: freezing that would freeze the host."""
    device = os.fstat(opened).st_dev
    return os.major(device) == _LOOP_MAJOR and device != mountpoint.parent.stat().st_dev
