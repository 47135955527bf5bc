import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from time import monotonic
from typing import NamedTuple

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import (
    CheckoutFailed,
    CheckoutRefused,
    CommitNotFound,
    GitError,
)
from sandbox_server.git.inside import BEGIN, FINISH, UPDATE
from sandbox_server.git.lfs.fetching import LargeFileFetcher
from sandbox_server.git.lfs.inside import LargeFilesInside
from sandbox_server.git.mirrors import Mirror, Mirrors
from sandbox_server.git.objects import GitObjects
from sandbox_server.git.packs import (
    PreparedPacks,
    PreparedUpdate,
    is_large,
    prepare_packs,
    prepare_update,
)
from sandbox_server.git.remotes import full_ref
from sandbox_server.git.rewriting import Identity
from sandbox_server.git.scanning import Pointers, list_pointers
from sandbox_server.git.uploads import upload_bytes, upload_file
from sandbox_server.providers.e2b.transfers import Transfers
from sandbox_server.providers.protocol.provider import Finished
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

log = logging.getLogger(__name__)

_BEGIN_LIMIT = timedelta(minutes=1)
_FINISH_LIMIT = timedelta(minutes=10)
_MAX_AGE = timedelta(seconds=30)
_LAST_WORDS = 2000
_NOT_EMPTY, _NO_GIT, _ANOTHER_CHECKOUT, _UNKNOWN_COMMAND = 90, 91, 92, 127
_OTHER_SERVER = (
    "Large files (Git LFS) stay pointers: the repository's .lfsconfig names {}, which is not its forge. No credential of the "
    "forge is sent there. `git lfs pull` in the sandbox fetches them if the sandbox reaches it, with a credential of its own."
)
_STAGE = ".git-checkout"  # becomes .git


Configure = Callable[[UsableSandbox], Awaitable[None]]
"""Configures git in a sandbox after a checkout, so that it reaches the repositories of the sandbox."""


class Rung(StrEnum):
    """How a checkout was made, from the fastest way to the slowest."""

    PRESENT = "present"
    """The branch was checked out before; nothing was touched."""
    SNAPSHOT = "snapshot"
    """The sandbox had a checkout, of a snapshot or template, which was updated."""
    PACKS = "packs"
    """The packs of the mirror were sent, with all history."""
    SHALLOW = "shallow"
    """The pack of one commit was sent: the repository is too large for all history."""


@dataclass(frozen=True, kw_only=True)
class CheckoutRequest:
    """A checkout of a new branch into a directory of a sandbox."""

    repository: Repository
    directory: str
    branch: str
    base_ref: str
    """The branch to start from."""
    base_sha: str | None = None
    """The commit to start from; None: the tip of `base_ref`."""
    identity: Identity
    user: str | None = None
    """The account in the sandbox; None: its default one."""


@dataclass(frozen=True, kw_only=True)
class CheckedOut:
    rung: Rung
    base_sha: str
    seconds: float
    is_stale: bool = False
    """The forge did not answer: the base is what the mirror knew."""
    pointers: str | None = None
    """Why large files of Git LFS stay pointers; None: they do not, or the sandbox has no git-lfs."""


class Checkouts:
    """Brings repositories into sandboxes of any provider, without a credential and without a network inside.

    The end is always the same: `origin` is the repository's address, its refspec has all branches, the branch is checked out
    with a clean status. A checkout that was interrupted is made anew: `.git` appears by a rename, at the end.
    """

    def __init__(
        self,
        mirrors: Mirrors,
        *,
        full_history: int = 512 * 2**20,
        configure: Configure | None = None,
        large_files: LargeFileFetcher | None = None,
    ) -> None:
        self._mirrors = mirrors
        self._full_history = full_history
        self._configure = configure
        self._large_files = large_files

    async def check_out(
        self,
        used: UsableSandbox,
        request: CheckoutRequest,
        *,
        max_age: timedelta = _MAX_AGE,
    ) -> CheckedOut:
        """Check a branch out; repeatable, and without an effect on a checkout of the same branch."""
        begun = monotonic()
        async with self._mirrors.use(request.repository, max_age=max_age) as mirror:
            base = await _find_base(mirror, request)
            placing = self._place(_Sandbox(used, request), mirror, base)
            try:
                (rung, base), large, _ = await asyncio.gather(
                    placing, self._list_large(mirror, base), self._configure_git(used)
                )
            except GitError:
                self._mirrors.discard(request.repository.id)
                raise
        pointers = await self._fetch(used, request, large)
        return CheckedOut(
            rung=rung,
            base_sha=base,
            seconds=monotonic() - begun,
            is_stale=mirror.is_stale,
            pointers=pointers,
        )

    async def _list_large(self, mirror: Mirror, base: str) -> Pointers:
        if self._large_files is None:
            return Pointers()
        try:
            return await list_pointers(GitObjects(mirror.path), base)
        except GitError as error:  # no reason to do without the rest
            log.warning("large files not listed repository=%s error=%s", mirror.path.name, error)
            return Pointers()

    async def _fetch(
        self, used: UsableSandbox, request: CheckoutRequest, found: Pointers
    ) -> str | None:
        if found.other_server is not None:
            return _OTHER_SERVER.format(found.other_server)
        if self._large_files is None or not found.objects:
            return None
        inside = LargeFilesInside(used, request.directory, user=request.user)
        return await self._large_files.fetch(inside, request.repository, found.objects)

    async def _configure_git(self, used: UsableSandbox) -> None:
        if self._configure is not None:
            await self._configure(used)

    async def _place(self, sandbox: "_Sandbox", mirror: Mirror, base: str) -> tuple[Rung, str]:
        prepared = sandbox.prepared_sha
        if prepared is not None:
            expected = _Found(prepared, "", is_large(mirror, limit=self._full_history))
            if await _update(sandbox, mirror, expected, base):
                return Rung.SNAPSHOT, base
        found = await sandbox.begin()
        if found is None:
            packs = await prepare_packs(mirror, base, limit=self._full_history)
            await sandbox.send(packs)
            await sandbox.finish(base, packs)
            return (Rung.SHALLOW if packs.is_shallow else Rung.PACKS), base
        if found.branch == sandbox.request.branch:
            return Rung.PRESENT, found.base
        if not await _update(sandbox, mirror, found, base):
            raise CheckoutFailed(sandbox.request.directory, "it was changed meanwhile")
        return Rung.SNAPSHOT, base


class _Found(NamedTuple):
    """A checkout in a sandbox."""

    base: str
    branch: str
    is_shallow: bool


async def _update(sandbox: "_Sandbox", mirror: Mirror, found: _Found, base: str) -> bool:
    """Update a checkout; returns False if the sandbox has another one."""
    update = await prepare_update(mirror, found.base, base, is_shallow=found.is_shallow)
    return await sandbox.update(found.base, base, update)


class _Sandbox:
    """The sandbox's side of one checkout."""

    def __init__(self, used: UsableSandbox, request: CheckoutRequest) -> None:
        self.request = request
        self._used = used
        self._stage = f"{request.directory}/{_STAGE}"

    @property
    def prepared_sha(self) -> str | None:
        """The commit that the sandbox's snapshot was prepared with, if it is the repository's own one."""
        repository = self.request.repository
        is_prepared = self._used.row.template == repository.prepared_snapshot
        return repository.prepared_sha if is_prepared else None

    @property
    def _transfers(self) -> Transfers:
        return self._used.backend.transfers(self._used.access, user=self.request.user)

    async def begin(self) -> _Found | None:
        """Make room for a checkout; returns the one that is there."""
        said = await self._run(BEGIN, _BEGIN_LIMIT)
        for line in said.output.decode(errors="replace").splitlines():
            words = line.split()
            if len(words) == 5 and words[0] == "ready":  # noqa: PLR2004
                _, repository, base, branch, history = words
                if repository != self.request.repository.id:
                    raise CheckoutRefused(
                        self.request.directory, "another repository is checked out there"
                    )
                return _Found(base, branch, is_shallow=history == "shallow")
        return None

    async def send(self, packs: PreparedPacks) -> None:
        """Send packs before their indexes, by which git finds them."""
        below = f"{self._stage}/objects/pack"
        for pack in packs.packs:
            for path in (pack, pack.with_suffix(".idx")):
                await upload_file(self._transfers, path, f"{below}/{path.name}")
        await upload_bytes(self._transfers, packs.packed_refs, f"{self._stage}/packed-refs")

    async def finish(self, base: str, packs: PreparedPacks) -> None:
        await self._run(
            FINISH, _FINISH_LIMIT, {"BASE": base, "SHALLOW": "1" if packs.is_shallow else ""}
        )

    async def update(self, known: str, base: str, update: PreparedUpdate) -> bool:
        """Update the checkout of `known`; returns False, and changes nothing, if it is not there."""
        below = f"{self.request.directory}/.git/objects/pack"
        for path in update.files:
            await upload_file(self._transfers, path, f"{below}/{path.name}")
        # All files need no look if the snapshot is ours, unless some may not be ignored any more.
        is_plain = known == self.prepared_sha and not update.changes_ignored
        flags = {"SHALLOW": update.is_shallow, "PLAIN": is_plain}
        extra = {name: "1" if flag else "" for name, flag in flags.items()}
        extra |= {"KNOWN": known, "BASE": base}
        said = await self._run(UPDATE, _FINISH_LIMIT, extra, accept=_ANOTHER_CHECKOUT)
        return said.exit_code == 0

    async def _run(
        self,
        script: str,
        limit: timedelta,
        extra: Mapping[str, str] | None = None,
        *,
        accept: int = 0,
    ) -> Finished:
        request = self.request
        envs = {
            "TARGET": request.directory,
            "STAGE": self._stage,
            "REPOSITORY": request.repository.id,
            "URL": request.repository.url,
            "BRANCH": request.branch,
            "BASE_REF": full_ref(request.base_ref).removeprefix("refs/heads/"),
            "DEFAULT": request.repository.default_branch,
            "NAME": request.identity.name,
            "EMAIL": request.identity.email,
            **(extra or {}),
        }
        inside = self._used.backend.inside(self._used.access)
        said = await inside.run_command(script, user=request.user, envs=envs, timeout=limit)
        if said.exit_code not in (0, accept):
            raise _failure(request.directory, said)
        return said


async def _find_base(mirror: Mirror, request: CheckoutRequest) -> str:
    full_ref(request.branch)
    if request.base_sha is None:
        return await mirror.head(request.base_ref)
    if not await mirror.has(request.base_sha):
        raise CommitNotFound(request.base_sha)
    return request.base_sha


def _failure(directory: str, said: Finished) -> CheckoutFailed | CheckoutRefused:
    if said.exit_code == _NOT_EMPTY:
        return CheckoutRefused(directory, "it exists and is not empty")
    words = said.output[-_LAST_WORDS:].decode(errors="replace").strip()
    if said.exit_code in (_NO_GIT, _UNKNOWN_COMMAND):
        return CheckoutFailed(directory, f"the sandbox has no git. {words}".strip())
    return CheckoutFailed(directory, words or f"exit code {said.exit_code}")
