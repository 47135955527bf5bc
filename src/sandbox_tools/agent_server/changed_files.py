"""Which files an agent changed: those that look different afterwards."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

_MOST_FILES = 50_000
_MOST_SECONDS = 5.0
_MOST_TOLD = 1_000
_NOT_LOOKED_AT = {".git", ".hg", "node_modules", ".venv", "venv", "__pycache__", ".cache", ".npm"}
_LIST = "git ls-files --cached --others --exclude-standard -z".split()

Look = Mapping[str, tuple[int, ...]]


def look(directory: Path) -> Look | None:
    """Note what each file looks like, those that git ignores apart; None where there are too many."""
    until = time.monotonic() + _MOST_SECONDS
    seen: dict[str, tuple[int, ...]] = {}
    for name in _names(directory):
        if len(seen) >= _MOST_FILES or time.monotonic() > until:
            return None
        try:
            status = os.lstat(directory / name)
        except OSError:
            continue
        seen[name] = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
    return seen


def changed(before: Look | None, after: Look | None) -> list[str] | None:
    """Name what is new, gone or different, or say None where it is not known."""
    if before is None or after is None:
        return None
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )[:_MOST_TOLD]


def _names(directory: Path) -> Iterator[str]:
    listed = _listed_by_git(directory)
    if listed is not None:
        return iter(listed)
    return islice(_walked(directory), _MOST_FILES + 1)


def _listed_by_git(directory: Path) -> list[str] | None:
    try:
        listed = subprocess.run(  # noqa: S603 - no word of it is a caller's
            _LIST, cwd=directory, capture_output=True, timeout=_MOST_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def _walked(directory: Path) -> Iterator[str]:
    for place, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name not in _NOT_LOOKED_AT]
        for name in files:
            yield os.path.relpath(Path(place) / name, directory)
