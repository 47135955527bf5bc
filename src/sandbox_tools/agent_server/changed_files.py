"""Files changed by an agent, found by comparing file status before and after."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

_MAX_FILES = 50_000
_MAX_SECONDS = 5.0
_MAX_LISTED = 1_000
_SKIPPED_DIRECTORIES = {
    ".git",
    ".hg",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".cache",
    ".npm",
}
_LIST = "git ls-files --cached --others --exclude-standard -z".split()

Snapshot = Mapping[str, tuple[int, ...]]


def snapshot(directory: Path) -> Snapshot | None:
    """Record the status of each file that git does not ignore; None if there are too many."""
    until = time.monotonic() + _MAX_SECONDS
    seen: dict[str, tuple[int, ...]] = {}
    for name in _names(directory):
        if len(seen) >= _MAX_FILES or time.monotonic() > until:
            return None
        try:
            status = os.lstat(directory / name)
        except OSError:
            continue
        seen[name] = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
    return seen


def diff(before: Snapshot | None, after: Snapshot | None) -> list[str] | None:
    """List new, deleted and changed files; None if unknown."""
    if before is None or after is None:
        return None
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )[:_MAX_LISTED]


def _names(directory: Path) -> Iterator[str]:
    listed = _list_with_git(directory)
    if listed is not None:
        return iter(listed)
    return islice(_walk(directory), _MAX_FILES + 1)


def _list_with_git(directory: Path) -> list[str] | None:
    try:
        listed = subprocess.run(  # noqa: S603 - no argument comes from a caller
            _LIST, cwd=directory, capture_output=True, timeout=_MAX_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def _walk(directory: Path) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name not in _SKIPPED_DIRECTORIES]
        for name in files:
            yield os.path.relpath(Path(parent) / name, directory)
