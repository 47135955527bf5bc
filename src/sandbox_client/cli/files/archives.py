"""Packs and unpacks directories. Archives from a sandbox are untrusted: nothing is written outside the target directory."""

import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_CARRIED = (
    tarfile.TarInfo.isfile,
    tarfile.TarInfo.isdir,
    tarfile.TarInfo.issym,
    tarfile.TarInfo.islnk,
)


def pack_directory(directory: Path, to: BinaryIO) -> None:
    """Pack files, links and directories, without owners."""
    with tarfile.open(fileobj=to, mode="w") as archive:
        archive.add(directory, arcname=".", filter=_anonymous)


def unpack_directory(packed: BinaryIO, into: Path) -> list[str]:
    """Unpack an archive; return the names of skipped members, which would escape or are no files.

    Links are created last and nothing is placed below one, so that nothing is written through them.
    """
    left_out: list[str] = []

    def checked(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        if not beneath.isdisjoint(_parents(member.name)):
            left_out.append(member.name)
            return None
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError:
            left_out.append(member.name)
            return None

    into.mkdir(exist_ok=True)
    with tarfile.open(fileobj=packed) as archive:
        members = sorted(archive.getmembers(), key=tarfile.TarInfo.issym)
        beneath = {posixpath.normpath(member.name) for member in members if member.issym()}
        archive.extractall(into, members, filter=checked)  # noqa: S202 - that is what `checked` is for
    return left_out


def _parents(name: str) -> Iterator[str]:
    return (str(parent) for parent in PurePosixPath(posixpath.normpath(name)).parents)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not any(is_so(member) for is_so in _CARRIED):
        return None
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)
