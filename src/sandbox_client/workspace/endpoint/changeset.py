"""Changesets: a tar of file contents named 0, 1, … that ends with `changes.json`, the list of changes."""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import IO

from sandbox_client.workspace.endpoint.entries import Change, Entry
from sandbox_client.workspace.endpoint.scanner import hash_of, is_executable, kind_of, reading

CHANGES = "changes.json"
_IN_MEMORY = 1 << 20
_LONGEST_NAME = 255


class ChangeRefused(Exception):
    """One change cannot be made; the text says why."""


def pack(root: str, changes: Iterable[Change], changeset_file: IO[bytes]) -> list[Change]:
    """Pack changes with the current file contents; missing files are skipped."""
    packed: list[Change] = []
    with tarfile.open(fileobj=changeset_file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for change in changes:
            if change.after is None or change.after.kind != "file":
                packed.append(change)
                continue
            with suppress(OSError, ChangeRefused):
                packed.append(_pack_file(root, change, tar, str(len(packed))))
        listing = json.dumps([asdict(change) for change in packed]).encode()
        _add(tar, CHANGES, len(listing), io.BytesIO(listing))
    return packed


def _pack_file(root: str, change: Change, tar: tarfile.TarFile, name: str) -> Change:
    with (
        parent_of(root, change.source or change.path) as (parent, base),
        reading(base, parent) as file,
        tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy,  # a file may grow while it is read
    ):
        info = os.fstat(file.fileno())
        if kind_of(info) != "file":
            raise ChangeRefused("It is no longer a file.")
        content = hash_of(file, copy.write)
        size = copy.tell()
        copy.seek(0)
        _add(tar, name, size, copy)
    return replace(change, after=Entry("file", content, is_executable(info)))


def _add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    header = tarfile.TarInfo(name)
    header.size = size
    tar.addfile(header, content)


@contextmanager
def parent_of(root: str, path: str) -> Iterator[tuple[int, str]]:
    """Open the parent directory without following symlinks; yield its descriptor and the base name."""
    *above, name = path.split("/")
    for part in (*above, name):
        if part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > _LONGEST_NAME:
            raise ChangeRefused("The path is not allowed in a workspace.")
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(part, flags, dir_fd=opened)
            os.close(opened)
            opened = below
        yield opened, name
    finally:
        os.close(opened)
