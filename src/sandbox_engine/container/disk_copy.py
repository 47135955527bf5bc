import fcntl
import os
from pathlib import Path
from tempfile import TemporaryFile

from sandbox_engine.container import disk
from sandbox_engine.container.disk_freeze import frozen
from sandbox_engine.system.sparse_files import copy_data

_FICLONE = 0x40049409
_PAGE = 4096


def copy_disk(sandbox: Path, target: Path, *, mountpoint: Path) -> None:
    """Copy the disk of the sandbox in this directory as it is at one moment, and mount the copy.

    All that was written before is in it; who writes meanwhile waits, and nobody else does. Blocks
    are shared where the file system can.
    """
    with (sandbox / "disk.img").open("rb") as source:

        def fill(copy: int) -> None:
            with frozen(sandbox / "disk"):
                if not _cloned(source.fileno(), copy):
                    copy_data(source.fileno(), copy)

        size = os.fstat(source.fileno()).st_size
        disk.attach_filled(target, mountpoint, size=size, fill=fill)


def is_shared(directory: Path) -> bool:
    """Tell whether copies in this directory take no room until they are changed."""
    with TemporaryFile(dir=directory) as source, TemporaryFile(dir=directory) as target:
        source.write(bytes(_PAGE))
        source.flush()
        return _cloned(source.fileno(), target.fileno())


def write_out(image: Path) -> None:
    """Put a disk image on the disk itself, and out of the page cache."""
    with image.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cloned(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # each file system says in its own way that it cannot
        return False
    return True
