import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import (
    CommitNotFound,
    GitError,
    GitTimedOut,
    RemoteRefused,
    RemoteUnreachable,
    RepositoryTooLarge,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import GitAccess, GitCredential
from sandbox_server.git.file_locks import NotLocked, locked
from sandbox_server.git.process import GitLimits, run_git
from sandbox_server.git.remotes import full_ref

Credentials = Callable[[Repository, GitAccess], Awaitable[GitCredential]]
"""Returns the URL of a repository and the credential for it."""

_FETCH_TIMEOUT = timedelta(minutes=30)
_MOST_REFS = 64 * 2**20
_FETCHED = "sandbox-fetched"
_BRANCHES, _TAGS = "refs/heads/", "refs/tags/"
_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_MOST_PACKS = 20
_BLOCK = 512
_CHECKSUM = 20
_DISK_FULL = "No space left on device"

log = logging.getLogger(__name__)


class Mirror:
    """A bare repository with the branches and tags of a forge's repository. It never loses an object."""

    def __init__(self, path: Path, *, is_stale: bool = False) -> None:
        self.path = path
        self.is_stale = is_stale
        """The forge did not answer, so this is what was known before."""

    async def head(self, ref: str) -> str:
        """Return the commit of a branch, or of a full ref; raises `CommitNotFound`."""
        found = await run_git(
            *("rev-parse", "--verify", "--quiet", f"{full_ref(ref)}^{{commit}}"),
            directory=self.path,
            accept=(0, 1, 128),
        )
        if found.exit_code:
            raise CommitNotFound(ref)
        return found.text

    async def has(self, sha: str) -> bool:
        found = await run_git("cat-file", "-e", sha, directory=self.path, accept=(0, 1, 128))
        return found.exit_code == 0

    async def changes(self, old: str, new: str, *paths: str) -> bool:
        """Tell whether two commits differ in files of these patterns."""
        found = await run_git(
            *("diff-tree", "-r", "--quiet", old, new, "--", *paths),
            directory=self.path,
            accept=(0, 1),
        )
        return found.exit_code == 1

    async def refs(self) -> dict[str, str]:
        """List branches and tags; an annotated tag is the object itself, not its commit."""
        said = await run_git(
            *("for-each-ref", "--format=%(objectname) %(refname)", _BRANCHES, _TAGS),
            directory=self.path,
            limits=GitLimits(output=_MOST_REFS),
        )
        return {ref: sha for sha, ref in (line.split(" ", 1) for line in said.lines)}

    def packs(self) -> Sequence[Path]:
        """List the packs, each with its index beside it; git itself passes over a damaged one."""
        packs = (self.path / "objects" / "pack").glob("pack-*.pack")
        found = sorted(pack for pack in packs if pack.with_suffix(".idx").exists())
        for pack in found:
            if not _is_whole(pack):
                raise GitError("pack-objects", f"{pack.name} is damaged")
        return found


class Mirrors:
    """Mirrors of repositories on this server. They are a cache: any of them may go and is made again.

    Per repository two locks of files: `{id}.fetch` for the one that writes, `{id}.use` shared by those who read, without whom
    a mirror may be removed.
    """

    def __init__(self, directory: Path, credentials: Credentials, *, limit: int) -> None:
        self.directory = directory
        self._credentials = credentials
        self._limit = limit

    @asynccontextmanager
    async def use(
        self, repository: Repository, *, max_age: timedelta | None
    ) -> AsyncIterator[Mirror]:
        """Open a mirror, fetched if it is older than `max_age`; None: only if there is none.

        If the forge does not answer, the mirror is what was fetched before.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        used = self._lock(repository.id, "use")
        async with locked(used, shared=True, wait=_FETCH_TIMEOUT):
            os.utime(used)
            path = self._path(repository.id)
            is_stale = False
            if not _is_fresh(path, max_age):
                is_stale = not await self._refresh(repository, path, max_age)
            yield Mirror(path, is_stale=is_stale)

    async def fetch(self, repository: Repository) -> None:
        """Fetch now; a mirror that is damaged is made again."""
        async with self.use(repository, max_age=timedelta(0)):
            pass
        await self.remove_unused()

    def discard(self, repository_id: str) -> None:
        """Have a mirror that is damaged made again at its next use."""
        (self._path(repository_id) / _FETCHED).unlink(missing_ok=True)

    async def remove(self, repository_id: str) -> None:
        """Remove a mirror unless it is in use."""
        path = self._path(repository_id)
        with suppress(NotLocked):
            async with locked(self._lock(repository_id, "use")):
                doomed = path.with_name(f"{path.name}.{new_id()}.removed")
                with suppress(FileNotFoundError):
                    path.rename(doomed)
                await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)

    async def remove_unused(self) -> None:
        """Remove the mirrors that were used longest ago until the others are within the limit."""
        sizes = await asyncio.to_thread(_sizes, self.directory)
        total = sum(sizes.values())
        for path in sorted(sizes, key=_last_used):
            if total <= self._limit:
                return
            await self.remove(path.name.removesuffix(".git"))
            if not path.exists():
                total -= sizes[path]

    async def _refresh(self, repository: Repository, path: Path, max_age: timedelta | None) -> bool:
        """Return whether the mirror is as new as wanted."""
        async with locked(self._lock(repository.id, "fetch"), wait=_FETCH_TIMEOUT):
            if _is_fresh(path, max_age):  # another one has fetched meanwhile
                return True
            try:
                await self._fetch(repository, path)
            except (RemoteUnreachable, GitTimedOut) as error:
                if not _is_complete(path):
                    raise
                log.warning("the mirror of %s is stale: %s", repository.id, error.said)
                return False
            return True

    async def _fetch(self, repository: Repository, path: Path) -> None:
        self._require_room(repository)
        credential = await self._credentials(repository, GitAccess.READ)
        if not _is_complete(path):
            await _make(path)
        try:
            await self._update(path, credential)
        except (RemoteRefused, RemoteUnreachable, GitTimedOut):
            raise
        except GitError as error:
            if _reached(path, self._limit):
                raise RepositoryTooLarge(repository.full_name, limit=self._limit) from None
            if _DISK_FULL in error.said:
                raise
            await self._make_again(repository, path, credential, error)
        (path / _FETCHED).touch()

    async def _update(self, path: Path, credential: GitCredential) -> None:
        mirror = Mirror(path)
        before = await mirror.refs()
        options = ("--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-gc")
        await run_git(
            *("fetch", *options, "--", credential.url, *_REFSPECS),
            directory=path,
            credential=credential,
            limits=GitLimits(timeout=_FETCH_TIMEOUT, file_size=self._limit),
        )
        await _keep_lost(mirror, before)
        if len(mirror.packs()) > _MOST_PACKS:
            await run_git("repack", "--geometric=2", "-d", "--quiet", directory=path)

    async def _make_again(
        self, repository: Repository, path: Path, credential: GitCredential, error: GitError
    ) -> None:
        """Replace a mirror in which git failed. Readers of the old one keep its open files."""
        log.warning("the mirror of %s is made again: %s", repository.id, error.said)
        doomed = path.with_name(f"{path.name}.{new_id()}.removed")
        path.rename(doomed)
        await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)
        await _make(path)
        await self._update(path, credential)

    def _require_room(self, repository: Repository) -> None:
        if (repository.size_bytes or 0) > self._limit:
            raise RepositoryTooLarge(repository.full_name, limit=self._limit)

    def _path(self, repository_id: str) -> Path:
        return self.directory / f"{repository_id}.git"

    def _lock(self, repository_id: str, what: str) -> Path:
        return self.directory / f"{repository_id}.{what}"


async def _make(path: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
    path.mkdir(mode=0o700)
    await run_git("init", "--quiet", "--bare", directory=path)


async def _keep_lost(mirror: Mirror, before: dict[str, str]) -> None:
    """Keep refs to what was overwritten or deleted upstream: others borrow its objects."""
    after = await mirror.refs()
    gone = {sha for ref, sha in before.items() if after.get(ref) != sha}
    if gone:
        lines = "".join(f"update refs/kept/{sha} {sha}\n" for sha in gone)
        await run_git("update-ref", "--stdin", directory=mirror.path, stdin=lines.encode())


def _is_whole(pack: Path) -> bool:
    """Compare the checksum at the end of a pack with the one that its index has of it."""
    with pack.open("rb") as content, pack.with_suffix(".idx").open("rb") as index:
        content.seek(-min(_CHECKSUM, pack.stat().st_size), os.SEEK_END)
        index.seek(-2 * _CHECKSUM, os.SEEK_END)
        return content.read() == index.read(_CHECKSUM)


def _reached(path: Path, limit: int) -> bool:
    """Tell whether git was stopped when a pack reached the limit of file sizes; it does not say so itself."""
    unfinished = (path / "objects" / "pack").glob("tmp_pack_*")
    return any(one.stat().st_size >= limit - _BLOCK for one in unfinished)


def _is_complete(path: Path) -> bool:
    return (path / _FETCHED).exists()


def _is_fresh(path: Path, max_age: timedelta | None) -> bool:
    try:
        fetched = (path / _FETCHED).stat().st_mtime
    except FileNotFoundError:
        return False
    # Both times are this machine's.
    return max_age is None or time.time() - fetched < max_age.total_seconds()


def _last_used(path: Path) -> float:
    try:
        return path.with_suffix(".use").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _sizes(directory: Path) -> dict[Path, int]:
    return {path: _size(path) for path in directory.glob("*.git")}


def _size(path: Path) -> int:
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_blocks * _BLOCK
    return total
