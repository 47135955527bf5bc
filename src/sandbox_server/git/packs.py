import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandbox_server.domain.ids import new_id
from sandbox_server.git.mirrors import Mirror
from sandbox_server.git.process import GitLimits, run_git

_PREPARED = "sandbox-prepared"
_KEPT = 3  # prepared commits per mirror
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


async def prepare_update(mirror: Mirror, known: str, wanted: str) -> bytes:
    """Pack what a repository with all of `known` lacks of `wanted`; everything if the mirror does not know it."""
    if known == wanted:
        return b""
    wants = [wanted, f"^{known}"] if await mirror.has(known) else [wanted]
    options = ("--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet")
    said = await run_git(
        *("pack-objects", *options),
        directory=mirror.path,
        stdin="".join(f"{line}\n" for line in wants).encode(),
        limits=_LIMITS,
    )
    return said.stdout


async def _single_commit(mirror: Mirror, base: str) -> Path:
    directory = mirror.path / _PREPARED / base
    if not directory.exists():
        await _make(mirror, base, directory)
    _remove_old(directory.parent, keep=directory)
    return next(directory.glob("pack-*.pack"))


async def _make(mirror: Mirror, base: str, directory: Path) -> None:
    unfinished = directory.with_name(f"{base}.{new_id()}")
    unfinished.mkdir(parents=True)
    objects = await run_git(
        "rev-list", "--objects", "--no-walk", base, directory=mirror.path, limits=_LIMITS
    )
    try:
        await run_git(
            *("pack-objects", "--quiet", "--delta-base-offset", str(unfinished / "pack")),
            directory=mirror.path,
            stdin=objects.stdout,
            limits=_LIMITS,
        )
        unfinished.rename(directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _remove_old(parent: Path, *, keep: Path) -> None:
    prepared = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in prepared[_KEPT:]:
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)
