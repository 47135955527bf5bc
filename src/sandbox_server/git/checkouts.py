import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import (
    CheckoutFailed,
    CheckoutRefused,
    CommitNotFound,
    GitError,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.git.mirrors import Mirror, Mirrors
from sandbox_server.git.packs import PreparedPacks, prepare_packs, prepare_update
from sandbox_server.git.remotes import full_ref
from sandbox_server.git.rewriting import Identity
from sandbox_server.git.sandbox_scripts import BEGIN, FINISH, UPDATE
from sandbox_server.providers.e2b.transfers import Transfers
from sandbox_server.providers.protocol.provider import Finished
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

_PART = 1024 * 1024
_BEGIN_LIMIT = timedelta(minutes=1)
_FINISH_LIMIT = timedelta(minutes=10)
_MAX_AGE = timedelta(seconds=30)
_LAST_WORDS = 2000
_NOT_EMPTY, _NO_GIT, _UNKNOWN_COMMAND = 90, 91, 127
_REMOTE = "refs/remotes/origin/"
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
    ) -> None:
        self._mirrors = mirrors
        self._full_history = full_history
        self._configure = configure

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
            try:
                rung, base = await self._place(_Sandbox(used, request), mirror, base)
            except GitError:
                self._mirrors.discard(request.repository.id)
                raise
        if self._configure is not None:
            await self._configure(used)
        return CheckedOut(
            rung=rung, base_sha=base, seconds=monotonic() - begun, is_stale=mirror.is_stale
        )

    async def _place(self, sandbox: "_Sandbox", mirror: Mirror, base: str) -> tuple[Rung, str]:
        found = await sandbox.begin()
        if found is None:
            packs = await prepare_packs(mirror, base, limit=self._full_history)
            await sandbox.send(packs)
            await sandbox.finish(base, packs)
            return (Rung.SHALLOW if packs.is_shallow else Rung.PACKS), base
        known, branch = found
        if branch == sandbox.request.branch:
            return Rung.PRESENT, known
        await sandbox.update(base, await prepare_update(mirror, known, base))
        return Rung.SNAPSHOT, base


class _Sandbox:
    """The sandbox's side of one checkout."""

    def __init__(self, used: UsableSandbox, request: CheckoutRequest) -> None:
        self.request = request
        self._used = used
        self._stage = f"{request.directory}/{_STAGE}"

    @property
    def _transfers(self) -> Transfers:
        return self._used.backend.transfers(self._used.access, user=self.request.user)

    async def begin(self) -> tuple[str, str] | None:
        """Make room for a checkout; returns base and branch of the one that is there."""
        said = await self._run(BEGIN, _BEGIN_LIMIT)
        for line in said.output.decode(errors="replace").splitlines():
            words = line.split()
            if len(words) == 4 and words[0] == "ready":  # noqa: PLR2004
                _, repository, base, branch = words
                if repository != self.request.repository.id:
                    raise CheckoutRefused(
                        self.request.directory, "another repository is checked out there"
                    )
                return base, branch
        return None

    async def send(self, packs: PreparedPacks) -> None:
        """Send packs before their indexes, by which git finds them."""
        below = f"{self._stage}/objects/pack"
        for pack in packs.packs:
            for path in (pack, pack.with_suffix(".idx")):
                await self._send_file(path, f"{below}/{path.name}")
        await self._send_bytes(_packed_refs(packs.refs), f"{self._stage}/packed-refs")

    async def finish(self, base: str, packs: PreparedPacks) -> None:
        await self._run(
            FINISH, _FINISH_LIMIT, {"BASE": base, "SHALLOW": "1" if packs.is_shallow else ""}
        )

    async def update(self, base: str, pack: bytes) -> None:
        name = f"{self.request.directory}/.git/sandbox-update-{new_id()}.pack" if pack else ""
        if pack:
            await self._send_bytes(pack, name)
        await self._run(UPDATE, _FINISH_LIMIT, {"BASE": base, "PACK": name})

    async def _send_file(self, path: Path, target: str) -> None:
        parts = _FileParts(path)
        await self._transfers.upload(target, parts, length=parts.length, reported_path=target)

    async def _send_bytes(self, content: bytes, target: str) -> None:
        async def parts() -> AsyncGenerator[bytes, None]:
            yield content

        await self._transfers.upload(target, parts(), length=len(content), reported_path=target)

    async def _run(
        self, script: str, limit: timedelta, extra: Mapping[str, str] | None = None
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
        if said.exit_code:
            raise _failure(request.directory, said)
        return said


async def _find_base(mirror: Mirror, request: CheckoutRequest) -> str:
    full_ref(request.branch)
    if request.base_sha is None:
        return await mirror.head(request.base_ref)
    if not await mirror.has(request.base_sha):
        raise CommitNotFound(request.base_sha)
    return request.base_sha


def _packed_refs(refs: Mapping[str, str]) -> bytes:
    """Turn the mirror's branches into those of `origin`, as a fetch would."""
    named = ((ref.replace("refs/heads/", _REMOTE, 1), sha) for ref, sha in refs.items())
    return "".join(f"{sha} {ref}\n" for ref, sha in sorted(named)).encode()


class _FileParts(AsyncGenerator[bytes, None]):
    """The content of a file, of the length that it has now.

    An upload that is refused early closes its parts while the next one is being read, which a generator of the language does
    not allow.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._left = self.length = path.stat().st_size
        self._reading = asyncio.Lock()

    async def asend(self, _value: None) -> bytes:
        async with self._reading:
            part = await self._read() if self._left and not self._file.closed else b""
        if not part:
            raise StopAsyncIteration
        return part

    async def athrow(self, *error: Any) -> bytes:
        await self.aclose()
        return await super().athrow(*error)

    async def aclose(self) -> None:
        async with self._reading:
            self._file.close()

    async def _read(self) -> bytes:
        part = await asyncio.to_thread(self._file.read, min(_PART, self._left))
        self._left -= len(part)
        return part


def _failure(directory: str, said: Finished) -> CheckoutFailed | CheckoutRefused:
    if said.exit_code == _NOT_EMPTY:
        return CheckoutRefused(directory, "it exists and is not empty")
    words = said.output[-_LAST_WORDS:].decode(errors="replace").strip()
    if said.exit_code in (_NO_GIT, _UNKNOWN_COMMAND):
        return CheckoutFailed(directory, f"the sandbox has no git. {words}".strip())
    return CheckoutFailed(directory, words or f"exit code {said.exit_code}")
