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
    """Hold up whoever writes to the disk image mounted here, with all that was written in the image.

    Where none is mounted nobody can write.
    """
    with closing(os.open(mountpoint, _DIRECTORY)) as opened:
        if not _is_disk_image(opened, mountpoint):
            yield
            return
        syncfs(opened)  # while all may still write, so that little is left for when they may not
        fcntl.ioctl(opened, _FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(opened, _FITHAW, 0)


def thaw(mountpoint: Path) -> None:
    """Let writers go on whom an engine that was killed has left waiting."""
    try:
        with closing(os.open(mountpoint, _DIRECTORY)) as opened:
            if _is_disk_image(opened, mountpoint):
                fcntl.ioctl(opened, _FITHAW, 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # EINVAL: nobody froze it
            raise


def _is_disk_image(opened: int, mountpoint: Path) -> bool:
    """Tell a mounted image from a bare directory; freezing that would freeze the host."""
    device = os.fstat(opened).st_dev
    return os.major(device) == _LOOP_MAJOR and device != mountpoint.parent.stat().st_dev
