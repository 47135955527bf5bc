import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox_tools.toolkit.threads import CheckCancelled

# What nobody looks for is not gone through, unless it is asked for by name.
SKIPPED_DIRECTORIES = frozenset(
    ".git .hg .svn .venv .tox .mypy_cache .pytest_cache .ruff_cache __pycache__ node_modules".split()
)


@dataclass(frozen=True)
class WalkEntry:
    """Something in a directory, by its path from where the walk began."""

    name: str
    entry: os.DirEntry[str]

    @property
    def is_directory(self) -> bool:
        return self.entry.is_dir(follow_symlinks=False)


def walk(
    root: Path,
    check_cancelled: CheckCancelled,
    *,
    skipped: Collection[str] = SKIPPED_DIRECTORIES,
    depth: int | None = None,
) -> Iterator[WalkEntry]:
    """Give what is in a directory and, where `depth` allows, in those in it, in the order of names; symlinks are not followed."""
    levels = [_scan(str(root), "", check_cancelled, is_needed=True)]
    while levels:
        for found in levels[-1]:
            yield found
            if found.is_directory and found.entry.name not in skipped and len(levels) != depth:
                levels.append(
                    _scan(found.entry.path, f"{found.name}/", check_cancelled, is_needed=False)
                )
                break
        else:
            levels.pop()


def _scan(
    directory: str, prefix: str, check_cancelled: CheckCancelled, *, is_needed: bool
) -> Iterator[WalkEntry]:
    """List a directory; below the one that was asked for, what cannot be read is passed over."""
    try:
        with os.scandir(directory) as entries:
            listed = []
            for entry in entries:
                check_cancelled()
                listed.append(entry)
    except OSError:
        if is_needed:
            raise
        return iter(())
    return (WalkEntry(prefix + entry.name, entry) for entry in sorted(listed, key=lambda e: e.name))
