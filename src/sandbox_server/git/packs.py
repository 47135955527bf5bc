import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandbox_server.domain.ids import new_id
from sandbox_server.git.mirrors import Mirror
from sandbox_server.git.process import GitLimits, run_git

_PREPARED, _KEPT = "sandbox-prepared", 3  # commits per mirror
_UPDATES, _KEPT_UPDATES = "sandbox-updates", 20
_CHANGES_IGNORED = "changes-ignored"
_LIMITS = GitLimits(timeout=timedelta(minutes=10), output=256 * 2**20)


@dataclass(frozen=True, kw_only=True)
class PreparedPacks:
    """Packs to send to a sandbox, with their indexes beside them, and the refs that they satisfy."""

    packs: Sequence[Path]
    refs: Mapping[str, str]
    is_shallow: bool


async def prepare_packs(mirror: Mirror, base: str, *, limit: int) -> PreparedPacks:
    """Choose the packs of a mirror with all history if they are within the limit, else make one of a single commit.

    Sending pack and index spares the sandbox the indexing, which takes longer than the transfer.
    """
    refs = await mirror.refs()  # before the packs: a fetch meanwhile adds to these
    packs = mirror.packs()
    if sum(pack.stat().st_size for pack in packs) <= limit:
        return PreparedPacks(packs=packs, refs=refs, is_shallow=False)
    pack = await _single_commit(mirror, base)
    refs = {ref: sha for ref, sha in refs.items() if sha == base}
    return PreparedPacks(packs=[pack], refs=refs, is_shallow=True)


@dataclass(frozen=True, kw_only=True)
class PreparedUpdate:
    """What a repository with all of one commit lacks of another one."""

    files: Sequence[Path]
    """A pack, and then its index, by which git finds it; none if nothing is missing."""
    changes_ignored: bool = False
    """Files that were ignored may not be any more."""


async def prepare_update(mirror: Mirror, known: str, wanted: str) -> PreparedUpdate:
    """Pack what a repository with all of `known` lacks of `wanted`; everything if the mirror does not know it.

    A pack with its index needs no work in the sandbox, and serves all sandboxes of a snapshot.
    """
    if known == wanted:
        return PreparedUpdate(files=[])
    directory = mirror.path / _UPDATES / f"{known}-{wanted}"
    if not directory.exists():
        async with _making(directory) as unfinished:
            await _make_update(mirror, known, wanted, unfinished)
    os.utime(directory)
    _remove_old(directory.parent, keep=directory, most=_KEPT_UPDATES)
    files = sorted(directory.glob("pack-*"), reverse=True)
    return PreparedUpdate(files=files, changes_ignored=(directory / _CHANGES_IGNORED).exists())


async def _make_update(mirror: Mirror, known: str, wanted: str, directory: Path) -> None:
    if not await mirror.has(known):
        (directory / _CHANGES_IGNORED).touch()
        await _pack(mirror, f"{wanted}\n".encode(), directory, "--revs")
        return
    changed = mirror.changes(known, wanted, ":(glob)**/.gitignore")
    _, changes_ignored = await asyncio.gather(
        _pack(mirror, f"{wanted}\n^{known}\n".encode(), directory, "--revs"), changed
    )
    if changes_ignored:
        (directory / _CHANGES_IGNORED).touch()


async def _single_commit(mirror: Mirror, base: str) -> Path:
    directory = mirror.path / _PREPARED / base
    if not directory.exists():
        async with _making(directory) as unfinished:
            await _make_single_commit(mirror, base, unfinished)
    _remove_old(directory.parent, keep=directory, most=_KEPT)
    return next(directory.glob("pack-*.pack"))


async def _make_single_commit(mirror: Mirror, base: str, directory: Path) -> None:
    objects = await run_git(
        "rev-list", "--objects", "--no-walk", base, directory=mirror.path, limits=_LIMITS
    )
    await _pack(mirror, objects.stdout, directory)


async def _pack(mirror: Mirror, objects: bytes, directory: Path, *options: str) -> None:
    """Write a pack and its index, unless there are no objects."""
    common = ("--quiet", "--non-empty", "--delta-base-offset")
    await run_git(
        *("pack-objects", *common, *options, str(directory / "pack")),
        directory=mirror.path,
        stdin=objects,
        limits=_LIMITS,
    )


@asynccontextmanager
async def _making(directory: Path) -> AsyncIterator[Path]:
    """Make a directory that appears when it is complete; of several that are made at once, one stays."""
    unfinished = directory.with_name(f"{directory.name}.{new_id()}")
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        try:
            unfinished.rename(directory)
        except OSError:
            if not directory.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove_old(parent: Path, *, keep: Path, most: int) -> None:
    used: dict[Path, float] = {}
    for path in parent.iterdir():
        with suppress(FileNotFoundError):  # it was complete, and renamed
            used[path] = path.stat().st_mtime
    for path in sorted(used, key=used.__getitem__, reverse=True)[most:]:
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)
