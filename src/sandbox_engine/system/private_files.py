import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace a private file atomically."""
    fresh = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
        file.write(content)
    fresh.rename(path)


def flush(path: Path) -> None:
    """Flush a file and its directory entry to disk."""
    for place in (path, path.parent):
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
