"""Contents of large files in the checkouts of sandboxes: below .git/lfs/objects, by their SHA-256."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sandbox_server.domain.errors import CheckoutFailed, PathNotFound, SaveFailed, SaveTooLarge
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

_LIMIT = timedelta(minutes=5)
_LAST_WORDS = 2000
_MOST = 5000

# What the commits of a save point to; after it was taken, its objects are in $SCRATCH. What its base has is known to the forge.
_LIST: Final = r"""(
set -u
export GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 LC_ALL=C
cd "$TARGET" || exit 95
if [ -z "$SCRATCH" ]; then
    :
elif objects=$(git rev-parse --git-path objects 2>/dev/null); then
    case $objects in /*) ;; *) objects=$PWD/$objects ;; esac
    export GIT_OBJECT_DIRECTORY="$SCRATCH/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
else
    export GIT_DIR="$SCRATCH/git"
fi
{ echo "$SAVE"; [ -z "$SCRATCH" ] || cut -d ' ' -f 1 "$SCRATCH/refs"; echo ${BASE:+"^$BASE"}; } | sed '/^$/d' |
    git rev-list --objects --no-object-names --stdin |
    git cat-file --batch-check='%(objecttype) %(objectsize) %(objectname)' |
    sed -nE 's/^blob [0-9]{2,3} //p' |
    git cat-file --batch |
    sed -nE '/^oid sha256:[0-9a-f]{64}$/{N;s/^oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})$/\1 \2/p}' |
    sort -u | head -n "$MOST" |
    while read -r oid size; do
        if [ -f "$STORE/${oid:0:2}/${oid:2:2}/$oid" ]; then echo "+ $oid $size"; else echo "- $oid $size"; fi
    done
)"""


_LOOK: Final = r"""(
cd "$TARGET" || exit 95
git config filter.lfs.clean >/dev/null && command -v git-lfs >/dev/null || exit 0
echo lfs
find .git/lfs/objects -type f -regextype posix-extended -regex '.*/[0-9a-f]{64}' -printf '%f %s\n' 2>/dev/null
exit 0
)"""

# Files that are pointers get their contents, as far as these are here; `git status` stays as it is.
_SHOW: Final = r"""(
export GIT_TERMINAL_PROMPT=0 LC_ALL=C
cd "$TARGET" && git lfs checkout 2>&1
)"""


@dataclass(frozen=True, kw_only=True)
class Commits:
    """The commits of a save. If it was just taken, its directory in the sandbox is still there."""

    scratch: str = ""
    save: str
    base: str | None
    store: str
    """Where the sandbox has contents."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The ids of contents that a save need not take."""

    here: Collection[str] = frozenset()
    """Earlier saves have them."""
    at_forge: Collection[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class TakenFiles:
    kept: Sequence[LfsObject]
    """Large files that commits point to and that this or an earlier save has."""
    contents: Mapping[str, bytes]
    """Large files in this save, by id."""


FindKept = Callable[[Sequence[LfsObject]], Awaitable[Kept]]


class LargeFilesInside:
    """The large files of one checkout in a sandbox."""

    def __init__(self, used: UsableSandbox, directory: str, *, user: str | None = None) -> None:
        self._used = used
        self._directory = directory
        self._user = user

    async def take(
        self, commits: Commits, find_kept: FindKept, *, room: int, limit: int
    ) -> TakenFiles:
        """Take the contents out that commits point to, and that only this sandbox has, as far as it has them."""
        named = await self._list(commits)
        kept = await find_kept([*named]) if named else Kept()
        lacking = [
            each
            for each, is_there in named.items()
            if is_there and each.oid not in kept.here and each.oid not in kept.at_forge
        ]
        _require_room(lacking, room=room, limit=limit)
        found = {each.oid: await self._read(commits.store, each) for each in lacking}
        contents = {oid: content for oid, content in found.items() if content is not None}
        stored = [each for each in named if each.oid in kept.here or each.oid in contents]
        return TakenFiles(kept=stored, contents=contents)

    async def list_new(self, save: str, base: str | None) -> Sequence[LfsObject]:
        """List what the commits of a restored save point to."""
        return [*await self._list(Commits(save=save, base=base, store=""))]

    async def list_present(self) -> Mapping[str, int] | None:
        """List the contents that are here, with their sizes; None if the sandbox does not use git-lfs."""
        said, _ = await self._run(_LOOK)
        first, *others = said.decode(errors="replace").splitlines() or [""]
        pairs = (line.split(" ") for line in others)
        return {oid: int(size) for oid, size in pairs} if first == "lfs" else None

    async def show(self) -> None:
        """Put the contents that are here into the files, in the place of pointers."""
        said, exit_code = await self._run(_SHOW)
        if exit_code:
            raise CheckoutFailed(self._directory, said[-_LAST_WORDS:].decode(errors="replace"))

    async def _read(self, store: str, wanted: LfsObject) -> bytes | None:
        """Read a content; None if it is not here, or is not what its name says."""
        transfers = self._used.backend.transfers(self._used.access, user=self._user)
        try:
            opened = await transfers.open(f"{store}/{_path(wanted.oid)}")
        except PathNotFound:
            return None
        assert opened is not None
        content = bytearray()
        try:
            async for part in opened.parts:
                content += part
                if len(content) > wanted.size:
                    return None
        finally:
            await opened.close()
        return bytes(content) if hashlib.sha256(content).hexdigest() == wanted.oid else None

    async def put(self, wanted: LfsObject, parts: AsyncGenerator[bytes, None]) -> None:
        transfers = self._used.backend.transfers(self._used.access, user=self._user)
        path = f"{self._directory}/.git/lfs/objects/{_path(wanted.oid)}"
        await transfers.upload(path, parts, length=wanted.size)

    async def _list(self, commits: Commits) -> Mapping[LfsObject, bool]:
        """List what commits point to, and whether it is here."""
        envs = {
            "SCRATCH": commits.scratch,
            "SAVE": commits.save,
            "BASE": commits.base or "",
            "STORE": commits.store,
            "MOST": str(_MOST),
        }
        said, exit_code = await self._run(_LIST, **envs)
        lines = said.decode(errors="replace").splitlines()
        try:
            named = [line.split(" ") for line in lines]
            return {LfsObject(oid=oid, size=int(size)): flag == "+" for flag, oid, size in named}
        except ValueError:  # what git said
            raise SaveFailed("\n".join(lines)[-_LAST_WORDS:] or str(exit_code)) from None

    async def _run(self, script: str, **envs: str) -> tuple[bytes, int]:
        inside = self._used.backend.inside(self._used.access)
        given: Mapping[str, str] = {"TARGET": self._directory, **envs}
        said = await inside.run_command(script, user=self._user, envs=given, timeout=_LIMIT)
        return said.output, said.exit_code


def _require_room(lacking: Sequence[LfsObject], *, room: int, limit: int) -> None:
    size = sum(each.size for each in lacking)
    if size > room:
        named = sorted(lacking, key=lambda each: each.size, reverse=True)[:5]
        largest = [f"{each.oid[:12]} of Git LFS ({each.size >> 20} MiB)" for each in named]
        raise SaveTooLarge(limit - room + size, limit=limit, largest=largest)


def _path(oid: str) -> str:
    return f"{oid[:2]}/{oid[2:4]}/{oid}"
