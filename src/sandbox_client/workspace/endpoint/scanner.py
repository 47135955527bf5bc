"""Lists a directory without following symlinks."""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

from sandbox_client.workspace.endpoint.entries import Entry, Kind
from sandbox_client.workspace.endpoint.ignore import Rules

_CHUNK = 1 << 20
# A file that changes twice within one tick of the kernel's clock looks the same after the second time.
_TICKS_NS = 100_000_000


def scan(root: str, rules: Rules, known: Mapping[str, Entry]) -> dict[str, Entry]:
    """List all entries that are not ignored; only files that changed since `known` are read.

    Unreadable files keep their known entry: as missing they would be deleted on the other side.
    """
    fresh = time.time_ns() - _TICKS_NS
    found: dict[str, Entry] = {}
    closed: list[str] = []
    for path, info in _walk(root, rules, closed):
        stamp = stamp_of(info) if info.st_ctime_ns < fresh else ""
        before = known.get(path)
        if stamp and before is not None and before.stamp == stamp:
            found[path] = before
            continue
        try:
            found[path] = replace(look(f"{root}/{path}", info), stamp=stamp)
        except FileNotFoundError:
            continue
        except OSError:
            if before is not None and before.kind == kind_of(info):
                found[path] = before
    for directory in closed:
        found |= {path: one for path, one in known.items() if path.startswith(f"{directory}/")}
    return found


def find_unreadable(root: str, rules: Rules) -> list[str]:
    """List unreadable files and directories that are not ignored."""
    closed: list[str] = []
    files = [
        path
        for path, info in _walk(root, rules, closed)
        if stat.S_ISREG(info.st_mode) and not os.access(f"{root}/{path}", os.R_OK)
    ]
    return [*files, *closed]


def _walk(root: str, rules: Rules, closed: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Walk all entries that are not ignored; unreadable directories are added to `closed`."""
    below = [""]
    while below:
        directory = below.pop()
        for child in _children(root, directory, closed):
            path = f"{directory}/{child.name}" if directory else child.name
            is_directory = child.is_dir(follow_symlinks=False)
            if rules.ignores(path, is_directory=is_directory):
                continue
            try:
                info = child.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:  # its directory gives names away and nothing else
                closed.append(directory)
                break
            if kind_of(info) is not None:
                yield path, info
                below += [path] if is_directory else []


def _children(root: str, directory: str, closed: list[str]) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(f"{root}/{directory}"))
    except OSError as error:
        if not directory:
            raise
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            closed.append(directory)
        return []


def kind_of(info: os.stat_result) -> Kind | None:
    if stat.S_ISREG(info.st_mode):
        return "file"
    if stat.S_ISLNK(info.st_mode):
        return "link"
    return "directory" if stat.S_ISDIR(info.st_mode) else None


def stamp_of(info: os.stat_result) -> str:
    if stat.S_ISDIR(info.st_mode):  # what is in it has paths of its own
        return "directory"
    return f"{info.st_ino}-{info.st_ctime_ns}-{info.st_size}-{info.st_mode:o}"


def look(path: str, info: os.stat_result, parent: int | None = None) -> Entry:
    """Build the entry of a path from its stat result."""
    kind = kind_of(info)
    if kind == "link":
        return Entry(kind, os.readlink(path, dir_fd=parent))
    if kind != "file":
        return Entry("directory")
    with reading(path, parent) as file:
        return Entry(kind, hash_of(file), executable=is_executable(info))


def is_executable(info: os.stat_result) -> bool:
    return bool(info.st_mode & stat.S_IXUSR)


@contextmanager
def reading(path: str, parent: int | None = None) -> Iterator[IO[bytes]]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, dir_fd=parent), "rb") as file:
        yield file


def hash_of(file: IO[bytes], take: Callable[[bytes], object] = len) -> str:
    """Hash the rest of a file and pass each piece to `take`."""
    digest = hashlib.sha256()
    while piece := file.read(_CHUNK):
        digest.update(piece)
        take(piece)
    return digest.hexdigest()
