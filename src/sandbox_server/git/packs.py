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
_REMOTE = "refs/remotes/origin/"
_CHANGES_IGNORED = "changes-ignored"
_NOTHING, _SUBMODULE = "000000", "160000"  # modes
_LIMITS = GitLimits(timeout=timedelta(minutes=10), output=256 * 2**20)


@dataclass(frozen=True, kw_only=True)
class PreparedPacks:
    """Packs to send to a sandbox, with their indexes beside them, and the refs that they satisfy."""

    packs: Sequence[Path]
    refs: Mapping[str, str]
    is_shallow: bool

    @property
    def packed_refs(self) -> bytes:
        """The mirror's branches as those of `origin`, as after a fetch."""
        named = ((ref.replace("refs/heads/", _REMOTE, 1), sha) for ref, sha in self.refs.items())
        return "".join(f"{sha} {ref}\n" for ref, sha in sorted(named)).encode()


async def prepare_packs(mirror: Mirror, base: str, *, limit: int) -> PreparedPacks:
    """Choose the packs of a mirror with all history if they are within the limit, else make one of a single commit.

    Sending pack and index spares the sandbox the indexing, which takes longer than the transfer.
    """
    refs = await mirror.refs()  # before the packs: a fetch meanwhile adds to these
    if not is_large(mirror, limit=limit):
        return PreparedPacks(packs=mirror.packs(), refs=refs, is_shallow=False)
    pack = await _single_commit(mirror, base)
    refs = {ref: sha for ref, sha in refs.items() if sha == base}
    return PreparedPacks(packs=[pack], refs=refs, is_shallow=True)


@dataclass(frozen=True, kw_only=True)
class PreparedUpdate:
    """The objects of one commit that a repository with all of another commit lacks."""

    files: Sequence[Path]
    """A pack, and then its index, by which git finds it; none if nothing is missing."""
    is_shallow: bool
    changes_ignored: bool = False
    """Files that were ignored may not be any more."""


def is_large(mirror: Mirror, *, limit: int) -> bool:
    """Tell whether checkouts of a repository are made without its history."""
    return sum(pack.stat().st_size for pack in mirror.packs()) > limit


async def prepare_update(
    mirror: Mirror, known: str, wanted: str, *, is_shallow: bool
) -> PreparedUpdate:
    """Pack what a repository with all of `known` lacks of `wanted`; everything if the mirror does not know it.

    A shallow repository has no commit before `known` and gets the one commit `wanted`. A pack with its index needs no work in
    the sandbox, and serves all sandboxes of a snapshot.
    """
    if known == wanted:
        return PreparedUpdate(files=[], is_shallow=is_shallow)
    name = f"{known}-{wanted}-shallow" if is_shallow else f"{known}-{wanted}"
    directory = mirror.path / _UPDATES / name
    if not directory.exists():
        async with _making(directory) as unfinished:
            await _make_update(mirror, known, wanted, unfinished, is_shallow=is_shallow)
    os.utime(directory)
    _remove_old(directory.parent, keep=directory, most=_KEPT_UPDATES)
    files = sorted(directory.glob("pack-*"), reverse=True)
    changes_ignored = (directory / _CHANGES_IGNORED).exists()
    return PreparedUpdate(files=files, is_shallow=is_shallow, changes_ignored=changes_ignored)


async def _make_update(
    mirror: Mirror, known: str, wanted: str, directory: Path, *, is_shallow: bool
) -> None:
    if not await mirror.has(known):
        (directory / _CHANGES_IGNORED).touch()
        if is_shallow:
            await _make_single_commit(mirror, wanted, directory)
        else:
            await _pack(mirror, f"{wanted}\n".encode(), directory, "--revs")
        return
    packing = (
        _pack_difference(mirror, known, wanted, directory)
        if is_shallow
        else _pack(mirror, f"{wanted}\n^{known}\n".encode(), directory, "--revs")
    )
    changed = mirror.changes(known, wanted, ":(glob)**/.gitignore")
    _, changes_ignored = await asyncio.gather(packing, changed)
    if changes_ignored:
        (directory / _CHANGES_IGNORED).touch()


async def _pack_difference(mirror: Mirror, known: str, wanted: str, directory: Path) -> None:
    """Pack a commit with all objects that are not at the same path in the other one, however old they are."""
    diff = ("diff-tree", "-r", "-t", "--raw", "--no-abbrev", "--no-renames", known, wanted)
    changed = await run_git(*diff, directory=mirror.path, limits=_LIMITS)
    tree = await run_git("rev-parse", f"{wanted}^{{tree}}", directory=mirror.path)
    objects = [wanted, tree.text]
    for line in changed.lines:
        _, mode, _, sha, *_ = line.split(maxsplit=4)
        if mode not in (_NOTHING, _SUBMODULE):
            objects.append(sha)
    await _pack(mirror, "".join(f"{one}\n" for one in objects).encode(), directory)


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
