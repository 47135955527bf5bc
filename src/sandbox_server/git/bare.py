import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import GitTimedOut
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.file_locks import NotLocked, locked
from sandbox_server.git.mirrors import Mirror, Mirrors
from sandbox_server.git.objects import GitObjects
from sandbox_server.git.process import run_git
from sandbox_server.git.remotes import PushOutcome, list_remote, push
from sandbox_server.git.rewriting import Identity, Wording, rewrite, squash
from sandbox_server.git.scanning import Findings, scan

_WAIT = timedelta(seconds=60)
# Another server may have fetched the base of a task.
_MAX_AGE = timedelta(minutes=5)


class BareRepository(GitObjects):
    """A scratch repository of a task, which borrows objects from a mirror."""

    async def rewrite_commits(
        self, base: str, head: str, reword: Wording, *, committer: Identity
    ) -> str:
        """Make the commits above `base` again with other messages; trees, authors and times stay."""
        return await rewrite(self, base, head, reword, committer=committer)

    async def squash(
        self, base: str, head: str, message: str, *, author: Identity, committer: Identity
    ) -> str:
        """Make one commit above `base` with the files of `head`."""
        return await squash(self, base, head, message, author=author, committer=committer)

    async def push(
        self,
        credential: GitCredential,
        ref: str,
        new: str,
        expected_old: str | None,
        *,
        options: Sequence[str] = (),
    ) -> PushOutcome:
        """Push a commit to a branch that is at `expected_old`; None: that does not exist yet."""
        return await push(self, credential, ref, new, expected_old, options=options)

    async def ls_remote(self, credential: GitCredential, *refs: str) -> Mapping[str, str]:
        """Ask the remote for its refs."""
        return await list_remote(credential, *refs)

    async def scan(self, base: str, head: str, *, protected: Sequence[str] = ()) -> Findings:
        """Look through what publishing `head` would publish."""
        return await scan(self, base, head, protected=protected)


class TaskRepositories:
    """The scratch repositories of tasks on this server; like mirrors, they can be made again."""

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._directory = mirrors.directory / "tasks"

    @asynccontextmanager
    async def open(
        self, repository: Repository, task_id: str, *, max_age: timedelta | None = None
    ) -> AsyncIterator[BareRepository]:
        """Open a task's repository, made if missing; its mirror stays until the block ends.

        With `max_age=None` a mirror of any age will do.
        """
        async with self._mirrors.use(repository, max_age=max_age) as mirror:
            path = self._path(task_id)
            await _make(path, mirror)
            yield BareRepository(path)

    @asynccontextmanager
    async def open_alone(self, repository: Repository) -> AsyncIterator[BareRepository]:
        """Open an empty repository for the work of several tasks, one at a time; it is removed afterwards."""
        name = f"several-{repository.id}"
        self._directory.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(
                    locked(self._directory / f"{name}.lock", wait=_WAIT)
                )
            except NotLocked:
                raise GitTimedOut("merge-tree", _WAIT) from None
            await self.remove(name)  # what a crash has left
            stack.push_async_callback(self.remove, name)
            yield await stack.enter_async_context(self.open(repository, name, max_age=_MAX_AGE))

    def has(self, task_id: str) -> bool:
        return self._path(task_id).exists()

    def list_ids(self, *, unchanged_for: timedelta) -> Sequence[str]:
        """List for whom there are repositories, made at least so long ago."""
        before = time.time() - unchanged_for.total_seconds()
        found = self._directory.glob("*.git")
        return [path.name.removesuffix(".git") for path in found if _made_at(path) < before]

    def _path(self, task_id: str) -> Path:
        return self._directory / f"{task_id}.git"

    async def remove(self, task_id: str) -> None:
        """Remove the repository of a task that has ended."""
        await asyncio.to_thread(shutil.rmtree, self._path(task_id), ignore_errors=True)


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # removed meanwhile
        return time.time()


async def _make(path: Path, mirror: Mirror) -> None:
    alternates = path / "objects" / "info" / "alternates"
    if not alternates.exists():
        path.mkdir(parents=True, exist_ok=True)
        await run_git("init", "--quiet", "--bare", directory=path)
        unfinished = alternates.with_suffix(".new")
        unfinished.write_text(f"{mirror.path / 'objects'}\n")
        unfinished.rename(alternates)
