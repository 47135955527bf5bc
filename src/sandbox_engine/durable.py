import os
from pathlib import Path


def replace_file(path: Path, content: str) -> None:
    """Replace a file so that a crash or a power cut leaves the old content or the new."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make what was renamed into a directory or removed from it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
