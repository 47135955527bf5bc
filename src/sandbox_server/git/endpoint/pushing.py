"""Pushes from sandboxes: stored, judged, forwarded with the forge's credential, and answered per ref.

head        commands that are not allowed refuse the push; its pack is read and dropped
pack        git indexes it into the scratch repository, as strictly as `receive.fsckObjects` does
commits     connected to what is known; without secrets, too large files and protected paths
forge       pushed with a lease on what the client has seen there, or kept until the forge answers
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sandbox_server.domain.errors import GitError, SandboxError
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.git.endpoint.access import RepositoryGrant
from sandbox_server.git.endpoint.ended_scratch import EndedScratch
from sandbox_server.git.endpoint.forwarding import Forwarding
from sandbox_server.git.endpoint.git_child import ChildFailed, consume
from sandbox_server.git.endpoint.push_report import RefResult
from sandbox_server.git.endpoint.push_request import PushRequest, RefCommand
from sandbox_server.git.endpoint.push_rules import refuse_content
from sandbox_server.git.file_locks import NotLocked, locked
from sandbox_server.git.mirrors import Mirror, Mirrors
from sandbox_server.git.objects import STRICT
from sandbox_server.git.pkt_line import FLUSH, pkt_line
from sandbox_server.git.process import GitLimits, open_git

MAX_PACK = 2**30
MAX_SCRATCH = 4 * MAX_PACK
"""Of all pushes of one task or sandbox, refused ones included."""
CAPABILITIES = (
    "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta "
    "object-format=sha1 agent=sandbox-server"
)

_LIMITS = GitLimits(timeout=timedelta(minutes=30), file_size=2 * MAX_PACK)
_TURN = timedelta(minutes=2)
_FORGE_ANSWERS_WITHIN = timedelta(seconds=10)
_LEFT_OVER = timedelta(hours=1)
_MIN_FREE_DISK = 2**30
_ZERO = "0" * 40


class PushRefused(Exception):
    """The push is refused as a whole; the text is the reason of each ref."""


class Pushes:
    """Takes pushes of granted branches."""

    def __init__(
        self,
        mirrors: Mirrors,
        repositories: TaskRepositories,
        forwarding: Forwarding,
        ended: EndedScratch,
    ) -> None:
        self._mirrors = mirrors
        self._repositories = repositories
        self._forwarding = forwarding
        self._ended = ended

    async def list_refs(self, grant: RepositoryGrant) -> bytes:
        """List the branch that may be pushed and the one it came from; all refs of a monorepo would be megabytes."""
        refs = await self._known_refs(grant)
        kept = await self._forwarding.find_accepted(grant)
        if kept is not None:
            refs[f"refs/heads/{grant.branch}"] = kept
        first, *others = [(sha, ref) for ref, sha in sorted(refs.items())] or [
            (_ZERO, "capabilities^{}")
        ]
        lines = [f"{first[0]} {first[1]}\0{CAPABILITIES}\n", *(f"{s} {r}\n" for s, r in others)]
        announced = pkt_line(b"# service=git-receive-pack\n") + FLUSH
        return announced + b"".join(pkt_line(line.encode()) for line in lines) + FLUSH

    async def store(
        self, grant: RepositoryGrant, push: PushRequest, pack: AsyncIterator[bytes]
    ) -> None:
        """Take the objects of a push in; raises `PushRefused`."""
        if push.has_pack:
            await self._ended.make_room_for(grant.work_id)
            async with self._repositories.open(grant.repository, grant.work_id) as scratch:
                _require_room(scratch.path)
                _remove_left_over(scratch.path)
                await _index(scratch.path, pack)

    async def forward(
        self, grant: RepositoryGrant, command: RefCommand
    ) -> tuple[RefResult, Sequence[str]]:
        """Judge the commits of a stored push and push them on; returns the answer and messages for the client."""
        async with (
            self._repositories.open(grant.repository, grant.work_id) as scratch,
            _one_at_a_time(scratch.path),
        ):
            try:
                base = await self._base(grant)
                await _require_connected(scratch, command.new)
                refused = await refuse_content(scratch, command, grant, base=base)
                if refused is not None:
                    return RefResult(ref=command.ref, reason=refused), ()
                return await self._forwarding.forward(scratch, grant, command, base=base)
            except GitError as error:
                return RefResult(ref=command.ref, reason=error.said), ()

    async def _base(self, grant: RepositoryGrant) -> str:
        async with self._mirrors.use(grant.repository, max_age=None) as mirror:
            return await mirror.head(grant.repository.default_branch)

    async def _known_refs(self, grant: RepositoryGrant) -> dict[str, str]:
        assert grant.branch is not None
        named = {grant.branch, grant.repository.default_branch}
        with suppress(TimeoutError):
            async with asyncio.timeout(_FORGE_ANSWERS_WITHIN.total_seconds()):
                async with self._mirrors.use(grant.repository, max_age=timedelta(0)) as mirror:
                    return await _heads(mirror, named)
        async with self._mirrors.use(grant.repository, max_age=None) as mirror:
            return await _heads(mirror, named)


async def _heads(mirror: Mirror, branches: set[str]) -> dict[str, str]:
    heads = {}
    for branch in branches:
        with suppress(SandboxError):
            heads[f"refs/heads/{branch}"] = await mirror.head(branch)
    return heads


async def _index(path: Path, pack: AsyncIterator[bytes]) -> None:
    command = ("index-pack", "--stdin", "--fix-thin", STRICT, f"--max-input-size={MAX_PACK}")
    async with open_git(*command, directory=path, limits=_LIMITS) as child:
        try:
            await consume(child, pack, timeout=_LIMITS.timeout)
        except ChildFailed as error:
            raise PushRefused(f"the pack was refused: {_reason(str(error))}") from None
        except TimeoutError:
            raise PushRefused(f"the pack did not arrive within {_LIMITS.timeout}") from None


async def _require_connected(scratch: BareRepository, commit: str) -> None:
    """Raise unless all objects of a commit are here or in the mirror."""
    options = ("--objects", "--stdin", "--not", "--all", "--alternate-refs")
    await scratch.git("rev-list", "--quiet", *options, stdin=commit.encode(), most=0)


@asynccontextmanager
async def _one_at_a_time(path: Path) -> AsyncIterator[None]:
    try:
        async with locked(path.with_suffix(".push"), wait=_TURN):
            yield
    except NotLocked:
        raise PushRefused("another push of this sandbox is in progress; push again later") from None


def _require_room(path: Path) -> None:
    packs = (path / "objects" / "pack").glob("*.pack")
    is_full = sum(pack.stat().st_size for pack in packs) > MAX_SCRATCH
    if is_full or shutil.disk_usage(path).free < _MIN_FREE_DISK:
        raise PushRefused("the server has no room for it; the commits are still in the sandbox")


def _remove_left_over(path: Path) -> None:
    """Remove what interrupted pushes have left."""
    until = time.time() - _LEFT_OVER.total_seconds()
    for unfinished in (path / "objects" / "pack").glob("tmp_*"):
        with suppress(FileNotFoundError):
            if unfinished.stat().st_mtime < until:
                unfinished.unlink()


def _reason(said: str) -> str:
    """Find the line with the reason; what is fatal at the end only says that there was one."""
    lines = said.splitlines() or ["git said nothing"]
    return next((line for line in lines if line.startswith("error: ")), lines[-1])
