import base64
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from sandbox_server.domain.errors import (
    BundleRefused,
    CheckoutFailed,
    SandboxError,
    SaveFailed,
    SaveTooLarge,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.stages import SaveKind
from sandbox_server.git.bundles import MAX_BUNDLE, Bundle, read_bundle
from sandbox_server.git.inside import HEAD, RESTORE, TAKE
from sandbox_server.git.lfs.inside import Commits, FindKept, LargeFilesInside
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.providers.protocol.provider import Finished
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

MAX_FILE: Final = 20 * 2**20
"""A larger file that is not committed is named and left out."""

_LIMIT = timedelta(minutes=5)
_LOOK_LIMIT = timedelta(seconds=60)
_LAST_WORDS = 2000
_MOST_LEFT_OUT = 100
_MAX_INLINE = 256 * 2**10  # bytes of a bundle in the output of the script
_OID = re.compile(r"[0-9a-f]{40}")
_STASH = "refs/stash"


@dataclass(frozen=True, kw_only=True)
class TakenWork:
    """The work in a sandbox at an instant, as a bundle whose checksum was verified."""

    kind: SaveKind
    sha: str
    """A commit with all files; HEAD itself if nothing was uncommitted."""
    head_sha: str | None
    branch: str | None
    tree: str
    mark: str
    """Equal for two saves of the same files, HEAD and branches."""
    base_sha: str | None
    """The commit that a reader of the bundle must have; None: none."""
    files: int
    """Files that differ from the base."""
    left_out: Sequence[str]
    bundle: bytes = field(repr=False)
    large: Sequence[LfsObject] = ()
    """Contents of Git LFS that its commits point to, and that are kept."""
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Those of them that were not kept before, by their ids."""

    @property
    def size(self) -> int:
        return len(self.bundle) + sum(map(len, self.contents.values()))


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """HEAD of a checkout; both None: the repository no longer exists."""

    head_sha: str | None
    branch: str | None


class SandboxWork:
    """Takes the work out of sandboxes, and puts it back, whatever the agent does and whether it has a network."""

    async def take(
        self,
        used: UsableSandbox,
        directory: str,
        base_sha: str,
        known_mark: str | None = None,
        *,
        user: str | None = None,
        find_kept: FindKept | None = None,
    ) -> TakenWork | None:
        """Take all work above a base: commits, branches and uncommitted files; None if `known_mark` is still true.

        HEAD, index and files of the checkout stay as they are.
        """
        async with _scratch(used, user) as scratch:
            envs = {
                "TARGET": directory,
                "SCRATCH": scratch.path,
                "BASE": base_sha,
                "KNOWN": known_mark or "",
                "MAX_KIB": str(MAX_FILE >> 10),
                "MAX_BUNDLE": str(MAX_BUNDLE),
                "MAX_INLINE": str(_MAX_INLINE),
            }
            said = await _run(used, TAKE, envs, user=user)
            told = _Told.read(said)
            scratch.is_removed = "removed" in told.lines
            told.require_taken(directory)
            if told.is_unchanged:
                return None
            inline = told.read_bundle()
            taken = _taken(told, inline or await _download(used, f"{scratch.path}/bundle", user))
            if find_kept is None or not (store := told.first("lfs")):
                return taken
            large = await LargeFilesInside(used, directory, user=user).take(
                Commits(scratch=scratch.path, save=taken.sha, base=taken.base_sha, store=store),
                find_kept,
                room=MAX_BUNDLE - taken.size,
                limit=MAX_BUNDLE,
            )
        return replace(taken, large=large.kept, contents=large.contents)

    async def restore(
        self, used: UsableSandbox, directory: str, bundle: bytes, *, user: str | None = None
    ) -> None:
        """Put work into a fresh checkout of its base: HEAD, branches and uncommitted files are as they were."""
        given = read_bundle(bundle)
        if given.save is None:
            raise BundleRefused("it has no save")
        async with _scratch(used, user) as scratch:
            transfers = used.backend.transfers(used.access, user=user)
            for name, content in (
                ("pack", b"" if given.is_empty else bytes(given.pack)),
                ("refs", _ref_updates(given)),
            ):
                target = f"{scratch.path}/{name}"
                await transfers.upload(target, _parts(content), length=len(content))
            envs = {
                "TARGET": directory,
                "SCRATCH": scratch.path,
                "SAVE": given.save,
                "HEAD": given.head or "",
                "BRANCH": given.branch or "",
                "STASH": given.refs.get(_STASH, ""),
            }
            said = await _run(used, RESTORE, envs, user=user)
        if said.exit_code:
            raise CheckoutFailed(directory, _words(said))

    async def restore_large_file(
        self, used: UsableSandbox, directory: str, oid: str, content: bytes
    ) -> None:
        """Put a content of Git LFS back, before the commits that point to it, with which it appears."""
        wanted = LfsObject(oid=oid, size=len(content))
        await LargeFilesInside(used, directory).put(wanted, _parts(content))

    async def head(
        self, used: UsableSandbox, directory: str, *, user: str | None = None
    ) -> HeadFacts:
        """Look at HEAD of a checkout."""
        said = await _run(used, HEAD, {"TARGET": directory}, user=user, limit=_LOOK_LIMIT)
        told = _Told.read(said)
        branch = told.first("branch")
        return HeadFacts(
            head_sha=told.oid("head"),
            branch=branch.removeprefix("refs/heads/") if branch else None,
        )


@dataclass(frozen=True)
class _Told:
    """Output of a script in a sandbox. Untrusted: root there can print anything."""

    lines: Sequence[str]
    exit_code: int

    @classmethod
    def read(cls, said: Finished) -> "_Told":
        return cls(said.output.decode(errors="replace").splitlines(), said.exit_code)

    @property
    def is_unchanged(self) -> bool:
        return "unchanged" in self.lines

    def all(self, name: str) -> Sequence[str]:
        return [line.removeprefix(f"{name} ") for line in self.lines if line.startswith(f"{name} ")]

    def first(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def oid(self, name: str) -> str | None:
        found = self.first(name)
        return found if _OID.fullmatch(found) else None

    def number(self, name: str) -> int:
        found = self.first(name)
        return int(found) if found.isascii() and found.isdecimal() and len(found) < 16 else 0  # noqa: PLR2004

    def read_bundle(self) -> bytes | None:
        """Read a small bundle; None if it has to be downloaded."""
        with suppress(ValueError):
            return base64.b64decode(self.first("bundle"), validate=True)
        return None

    def require_taken(self, directory: str) -> None:
        if "missing" in self.lines:
            raise SaveFailed(f"the directory {directory!r} does not exist any more.")
        if self.number("size") > MAX_BUNDLE:
            largest = [*self.all("largest")][:5]
            raise SaveTooLarge(self.number("size"), limit=MAX_BUNDLE, largest=largest)
        if self.exit_code or not ({"saved", "unchanged"} & {*self.lines}):
            said = " ".join(self.all("failed")) or "\n".join(self.lines)[-_LAST_WORDS:]
            raise SaveFailed(said or f"git ended with {self.exit_code}")


def _taken(told: _Told, content: bytes) -> TakenWork:
    bundle = read_bundle(content)
    tree, mark = told.oid("tree"), told.oid("mark")
    if bundle.save is None or tree is None or mark is None:
        raise SaveFailed("the sandbox did not say what it saved")
    return TakenWork(
        kind=SaveKind.HEAD if bundle.save == bundle.head else SaveKind.WIP,
        sha=bundle.save,
        head_sha=bundle.head,
        branch=bundle.branch,
        tree=tree,
        mark=mark,
        base_sha=next(iter(bundle.prerequisites), None),
        files=told.number("files"),
        left_out=[*told.all("left-out")][:_MOST_LEFT_OUT],
        bundle=content,
    )


def _ref_updates(bundle: Bundle) -> bytes:
    """Write the lines for `git update-ref --stdin`."""
    refs = {f"refs/heads/{name}": sha for name, sha in bundle.branches.items()}
    if bundle.branch is not None and bundle.head is not None:
        refs[f"refs/heads/{bundle.branch}"] = bundle.head
    return "".join(f"update {ref} {sha}\n" for ref, sha in refs.items()).encode()


@dataclass
class _Scratch:
    """A directory in a sandbox."""

    path: str
    is_removed: bool = False


@asynccontextmanager
async def _scratch(used: UsableSandbox, user: str | None) -> AsyncIterator[_Scratch]:
    """Name a directory in the sandbox that is removed afterwards."""
    scratch = _Scratch(f"/tmp/.sandbox-work-{new_id()}")  # noqa: S108 - in the sandbox
    try:
        yield scratch
    finally:
        if not scratch.is_removed:
            with suppress(SandboxError):
                await used.backend.files(used.access, user=user).remove(scratch.path)


async def _run(
    used: UsableSandbox,
    script: str,
    envs: Mapping[str, str],
    *,
    user: str | None,
    limit: timedelta = _LIMIT,
) -> Finished:
    inside = used.backend.inside(used.access)
    return await inside.run_command(script, user=user, envs=envs, timeout=limit)


async def _download(used: UsableSandbox, path: str, user: str | None) -> bytes:
    opened = await used.backend.transfers(used.access, user=user).open(path)
    if opened is None:
        raise SaveFailed("the sandbox did not keep the bundle")
    content = bytearray()
    try:
        async for part in opened.parts:
            content += part
            if len(content) > MAX_BUNDLE:
                raise SaveTooLarge(opened.length, limit=MAX_BUNDLE, largest=[])
    finally:
        await opened.close()
    return bytes(content)


async def _parts(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


def _words(said: Finished) -> str:
    return said.output[-_LAST_WORDS:].decode(errors="replace").strip() or str(said.exit_code)
