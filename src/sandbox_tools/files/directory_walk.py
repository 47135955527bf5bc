import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox_tools.toolkit.threads import CheckCancelled

# Version control, dependencies and caches: skipped unless the path or pattern names them.
SKIPPED_DIRECTORIES = frozenset(
    ".git .hg .svn .venv .tox .mypy_cache .pytest_cache .ruff_cache __pycache__ node_modules".split()
)


@dataclass(frozen=True)
class WalkEntry:
    """A directory entry; `name` is its path relative to the start of the walk."""

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
    """Yield the entries of a directory tree, sorted by name, down to `depth`; symlinks are not followed."""
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
    """List a directory; only the root of a walk must be readable."""
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
