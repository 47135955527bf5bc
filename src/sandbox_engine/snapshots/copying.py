import fcntl
import os
import tempfile
from pathlib import Path

from sandbox_engine import disk
from sandbox_engine.disk_freeze import frozen

_FICLONE = 0x40049409
_PAGE = 4096


def copy_disk(sandbox: Path, target: Path) -> None:
    """Copy the disk of the sandbox in this directory as it is at one moment.

    All that was written before is in the copy; who writes meanwhile waits, and nobody else does.
    """
    with frozen(sandbox / "disk"):
        copy_image(sandbox / "disk.img", target)


def copy_image(source: Path, target: Path) -> None:
    """Copy a disk image, sharing its blocks where the file system can."""
    if not _cloned(source, target):
        disk.copy_sparse(source, target)


def is_shared(directory: Path) -> bool:
    """Tell whether copies in this directory take no room until they are changed."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        source = Path(place) / "source"
        source.write_bytes(bytes(_PAGE))
        return _cloned(source, Path(place) / "target")


def write_out(image: Path) -> None:
    """Put a disk image on the disk itself, and out of the page cache."""
    with image.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cloned(source: Path, target: Path) -> bool:
    with source.open("rb") as reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:  # each file system says in its own way that it cannot
            target.unlink()
            return False
    return True
