"""Applies a changeset: each change only if the path is still as scanned, and never through a symlink."""

import json
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sandbox_client.workspace.endpoint.changeset import CHANGES, ChangeRefused, parent_of
from sandbox_client.workspace.endpoint.entries import Change, Entry, is_same
from sandbox_client.workspace.endpoint.ignore import STAGING
from sandbox_client.workspace.endpoint.scanner import hash_of, kind_of, look, stamp_of

_ABANDONED_S = 3600


@dataclass(frozen=True)
class Outcome:
    """The changes that were made, and those that were refused with the reason."""

    done: list[Change]
    refused: dict[str, str]


def apply(
    root: str, changeset_file: IO[bytes], expected: Mapping[str, Change] | None = None
) -> Outcome:
    """Apply a changeset; of an untrusted one, only the `expected` changes."""
    _sweep(root)
    outcome = Outcome([], {})
    with tempfile.TemporaryDirectory(prefix=STAGING, dir=root) as staging:
        changes = _unpack(changeset_file, Path(staging))
        for number in sorted(range(len(changes)), key=lambda number: _order(changes[number])):
            change = changes[number]
            if expected is not None and not _is_expected(change, expected):
                continue
            try:
                with parent_of(root, change.path) as (parent, name):
                    _make(change, parent, name, Path(staging, str(number)))
                outcome.done.append(change)
            except ChangeRefused as error:
                outcome.refused[change.path] = str(error)
            except OSError as error:
                outcome.refused[change.path] = f"{error.strerror}."
    return outcome


def _is_expected(change: Change, expected: Mapping[str, Change]) -> bool:
    wanted = expected.get(change.path)
    return (
        wanted is not None
        and is_same(wanted.before, change.before)
        and _kind(wanted.after) == _kind(change.after)
    )


def _kind(entry: Entry | None) -> str | None:
    return None if entry is None else entry.kind


def _sweep(root: str) -> None:
    """Remove staging directories of killed processes."""
    for child in os.scandir(root):
        if child.name.startswith(STAGING):
            with suppress(OSError):
                if child.stat(follow_symlinks=False).st_mtime < time.time() - _ABANDONED_S:
                    shutil.rmtree(child.path)


def _unpack(changeset_file: IO[bytes], staging: Path) -> list[Change]:
    changes: list[Change] = []
    contents: dict[int, str] = {}
    with tarfile.open(fileobj=changeset_file, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise ValueError("The changeset contains something other than files.")
            if member.name == CHANGES:
                changes = [Change.read(fields) for fields in json.load(content)]
            else:
                number = int(member.name)
                with (staging / str(number)).open("xb") as file:
                    contents[number] = hash_of(content, file.write)
    return [_with_content(change, contents.get(n)) for n, change in enumerate(changes)]


def _with_content(change: Change, content: str | None) -> Change:
    """Trust the received content, not the announced hash."""
    if change.after is None or content is None:
        return change
    return replace(change, after=replace(change.after, content=content))


def _order(change: Change) -> tuple[int, int]:
    """Order: deletions from the leaves up, then directories from the root down, then files."""
    depth = change.path.count("/")
    if change.after is None:
        return 0, -depth
    return (1, depth) if change.after.kind == "directory" else (2, depth)


def _make(change: Change, parent: int, name: str, staged: Path) -> None:
    there = _find(parent, name)
    if is_same(change.after, there):
        return
    if not is_same(change.before, there):
        raise ChangeRefused("It was changed in the meantime.")
    if there is not None and (
        change.after is None or "directory" in (there.kind, change.after.kind)
    ):
        _remove(there, parent, name)
    if change.after is not None:
        _put(change.after, parent, name, staged, replaces=there)


def _find(parent: int, name: str) -> Entry | None:
    try:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if kind_of(info) is None:
        raise ChangeRefused("The existing path is not a file, link or directory.")
    return replace(look(name, info, parent), stamp=stamp_of(info))


def _remove(there: Entry, parent: int, name: str) -> None:
    if there.kind == "directory":
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _put(to: Entry, parent: int, name: str, staged: Path, *, replaces: Entry | None) -> None:
    if to.kind == "directory":
        os.mkdir(name, dir_fd=parent)
        return
    if to.kind == "link":
        staged.symlink_to(to.content)
    elif replaces is not None and replaces.kind == "file":
        before = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        staged.chmod(_with_executable(stat.S_IMODE(before), executable=to.executable))
    else:
        staged.chmod(_with_executable(0o666 & ~_umask(), executable=to.executable))
    os.rename(staged, name, dst_dir_fd=parent)


def _with_executable(mode: int, *, executable: bool) -> int:
    """Set or clear the execute bits for everyone who may read it."""
    return mode | (mode & 0o444) >> 2 if executable else mode & 0o666


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
