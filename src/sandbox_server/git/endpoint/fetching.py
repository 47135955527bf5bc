import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

from starlette.types import Scope

from sandbox_http.headers import find_header
from sandbox_server.git.endpoint.access import RepositoryGrant
from sandbox_server.git.endpoint.git_child import answer
from sandbox_server.git.endpoint.recent_pushes import RecentPushes
from sandbox_server.git.endpoint.request_body import inflate
from sandbox_server.git.mirrors import Mirror, Mirrors
from sandbox_server.git.pkt_line import FLUSH, pkt_line
from sandbox_server.git.process import GitLimits, open_git, run_git
from sandbox_server.git.remotes import full_ref

MAX_REQUEST = 2**20
"""Of the wants and haves of a fetch, unpacked."""

_MAX_AGE = timedelta(seconds=30)
_LIMITS = GitLimits(timeout=timedelta(minutes=30))
_PROTOCOL = re.compile(rb"version=[0-2]")
_CONFIG = (
    *("-c", "uploadpack.allowFilter=true"),
    *("-c", "uploadpack.allowAnySHA1InWant=true"),
    *("-c", "uploadpack.keepAlive=2"),
    # What was overwritten at the forge stays in the mirror, and is not offered.
    *("-c", "transfer.hideRefs=refs/kept"),
)


class Fetches:
    """Serves fetches from the mirrors."""

    def __init__(self, mirrors: Mirrors, recent_pushes: RecentPushes) -> None:
        self._mirrors = mirrors
        self._recent_pushes = recent_pushes

    async def open_refs(
        self, stack: AsyncExitStack, grant: RepositoryGrant, scope: Scope
    ) -> AsyncIterator[bytes]:
        """List what can be fetched: refs, or with protocol 2 capabilities."""
        was_pushed = self._recent_pushes.has(grant.repository.id)
        mirror = await self._open(stack, grant, max_age=timedelta(0) if was_pushed else _MAX_AGE)
        await _point_head(mirror, grant.repository.default_branch)
        return _announced(await _upload_pack(stack, mirror, scope, b"", "--advertise-refs"))

    async def open_pack(
        self, stack: AsyncExitStack, grant: RepositoryGrant, scope: Scope, body: bytes
    ) -> AsyncIterator[bytes]:
        """Answer one request of a fetch; refs were listed from the same mirror a moment before."""
        if find_header(scope["headers"], b"content-encoding") == b"gzip":
            body = inflate(body, limit=MAX_REQUEST)
        mirror = await self._open(stack, grant, max_age=None)
        return await _upload_pack(stack, mirror, scope, body)

    async def _open(
        self, stack: AsyncExitStack, grant: RepositoryGrant, *, max_age: timedelta | None
    ) -> Mirror:
        return await stack.enter_async_context(self._mirrors.use(grant.repository, max_age=max_age))


async def _point_head(mirror: Mirror, branch: str) -> None:
    """Have clones check out the default branch, which may have been changed at the forge."""
    wanted = full_ref(branch)
    if (mirror.path / "HEAD").read_text().strip() != f"ref: {wanted}":
        await run_git("symbolic-ref", "HEAD", wanted, directory=mirror.path)


async def _upload_pack(
    stack: AsyncExitStack, mirror: Mirror, scope: Scope, body: bytes, *options: str
) -> AsyncIterator[bytes]:
    asked = find_header(scope["headers"], b"git-protocol") or b""
    known = b":".join(_PROTOCOL.findall(asked)).decode()
    child = await stack.enter_async_context(
        open_git(
            *(*_CONFIG, "upload-pack", "--stateless-rpc", "--strict", *options, str(mirror.path)),
            envs={"GIT_PROTOCOL": known} if known else {},
            limits=_LIMITS,
        )
    )
    return answer(child, body, timeout=_LIMITS.timeout)


async def _announced(output: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield pkt_line(b"# service=git-upload-pack\n") + FLUSH
    async for part in output:
        yield part
