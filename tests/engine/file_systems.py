"""File systems of a test's own, so that none fills the machine's."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_engine.container import disk

RELEASE_DISKS = """
while read -r device target type rest; do
    case "$target $device $type" in /*/*/*" /dev/loop"*|/*/*/*" overlay") umount -l "$target" ;; esac
done </proc/mounts
"""
"""For a new mount namespace, which begins with a copy of every mount.

Disks of other engines' sandboxes would stay in use for as long as it is there, and these sandboxes could not resume.
"""


@contextmanager
def sharing_file_system(size_mb: int) -> Iterator[Path]:
    """Mount an empty file system whose files can share blocks."""
    with tempfile.TemporaryDirectory(prefix="engine-disk-") as directory:
        image, mounted = Path(directory) / "image", Path(directory) / "mounted"
        mounted.mkdir()
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        subprocess.run(["mkfs.xfs", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
        try:
            yield mounted
        finally:
            subprocess.run(["umount", "--lazy", mounted], check=True)


@contextmanager
def small_file_system(size_mb: int) -> Iterator[Path]:
    """Mount an empty file system of this size."""
    with tempfile.TemporaryDirectory(prefix="engine-disk-") as directory:
        image, mounted = Path(directory) / "image", Path(directory) / "mounted"
        mounted.mkdir()
        subprocess.run([*disk.MKFS, image, f"{size_mb}m"], check=True)
        disk.attach(image, mounted)
        try:
            yield mounted
        finally:
            disk.detach(mounted)
