import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox_tools.toolkit.threads import Check

# What nobody looks for is not gone through, unless it is asked for by name.
LEFT_OUT = frozenset(
    ".git .hg .svn .venv .tox .mypy_cache .pytest_cache .ruff_cache __pycache__ node_modules".split()
)


@dataclass(frozen=True)
class Found:
    """Something in a directory, by its path from where the walk began."""

    name: str
    entry: os.DirEntry[str]

    @property
    def is_directory(self) -> bool:
        return self.entry.is_dir(follow_symlinks=False)


def walk(
    root: Path, check: Check, *, left_out: Collection[str] = LEFT_OUT, depth: int | None = None
) -> Iterator[Found]:
    """Give what is in a directory and, where `depth` allows, in those in it, in the order of names; symlinks are not followed."""
    levels = [_listed(str(root), "", check, is_needed=True)]
    while levels:
        for found in levels[-1]:
            yield found
            if found.is_directory and found.entry.name not in left_out and len(levels) != depth:
                levels.append(_listed(found.entry.path, f"{found.name}/", check, is_needed=False))
                break
        else:
            levels.pop()


def _listed(directory: str, prefix: str, check: Check, *, is_needed: bool) -> Iterator[Found]:
    """List a directory; below the one that was asked for, what cannot be read is passed over."""
    try:
        with os.scandir(directory) as entries:
            listed = []
            for entry in entries:
                check()
                listed.append(entry)
    except OSError:
        if is_needed:
            raise
        return iter(())
    return (Found(prefix + entry.name, entry) for entry in sorted(listed, key=lambda e: e.name))
