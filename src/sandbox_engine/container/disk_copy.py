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
    """Copy the disk of a sandbox at one point in time, and mount the copy.

    The copy contains everything written before. Writers of this disk wait meanwhile, others do not.
    Blocks are shared where the file system supports it.
    """
    with (sandbox / "disk.img").open("rb") as source:

        def fill(copy: int) -> None:
            with frozen(sandbox / "disk"):
                if not _cloned(source.fileno(), copy):
                    copy_data(source.fileno(), copy)

        size = os.fstat(source.fileno()).st_size
        disk.attach_filled(target, mountpoint, size=size, fill=fill)


def is_shared(directory: Path) -> bool:
    """Return whether copies in this directory share blocks with the original."""
    with TemporaryFile(dir=directory) as source, TemporaryFile(dir=directory) as target:
        source.write(bytes(_PAGE))
        source.flush()
        return _cloned(source.fileno(), target.fileno())


def write_out(image: Path) -> None:
    """Flush a disk image to the disk and drop it from the page cache."""
    with image.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cloned(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # each file system reports missing support differently
        return False
    return True
