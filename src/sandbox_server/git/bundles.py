"""Git bundles: a header of lines, an empty line, a pack.

    # v2 git bundle
    -{commit that the reader must have} {comment}
    {commit} {ref}

    PACK…

The work that is taken out of a sandbox is one bundle that says all about itself:

    {commit} refs/sandbox/save             the files; HEAD itself if nothing was uncommitted
    {commit} refs/sandbox/head/{branch}    HEAD on a branch, or
    {commit} refs/sandbox/detached         HEAD without one
    {commit} refs/heads/{branch}           branches of the sandbox, so that nothing is lost that HEAD left
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sandbox_server.domain.errors import BundleRefused

SAVE_REF: Final = "refs/sandbox/save"
HEAD_REF: Final = "refs/sandbox/head/"
DETACHED_REF: Final = "refs/sandbox/detached"
BRANCHES: Final = "refs/heads/"

MAX_BUNDLE: Final = 64 * 2**20

_SIGNATURE = b"# v2 git bundle\n"
_MAX_HEADER = 4 * 2**20
_MAX_REFS = 10_000
_PACK = b"PACK"
_PACK_HEADER = 12
_TRAILER = hashlib.sha1(usedforsecurity=False).digest_size
_OID = re.compile(r"[0-9a-f]{40}")
# What git accepts as a ref, and what its argument parser cannot take for an option.
_REF = re.compile(r"refs(/(?!\.)[^\x00-\x20\x7f~^:?*\[\\/]+)+")


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle whose framing and checksum were verified; its objects were not."""

    prerequisites: Sequence[str]
    refs: Mapping[str, str]
    pack: memoryview = field(repr=False)

    @property
    def save(self) -> str | None:
        return self.refs.get(SAVE_REF)

    @property
    def branch(self) -> str | None:
        """The branch that HEAD was on."""
        return next(
            (ref.removeprefix(HEAD_REF) for ref in self.refs if ref.startswith(HEAD_REF)), None
        )

    @property
    def head(self) -> str | None:
        """None if there was no commit."""
        for ref, commit in self.refs.items():
            if ref == DETACHED_REF or ref.startswith(HEAD_REF):
                return commit
        return None

    @property
    def branches(self) -> Mapping[str, str]:
        """Commits of the sandbox's branches by name."""
        return {
            ref.removeprefix(BRANCHES): commit
            for ref, commit in self.refs.items()
            if ref.startswith(BRANCHES)
        }

    @property
    def is_empty(self) -> bool:
        """It has no objects: all refs are known to the reader."""
        return int.from_bytes(self.pack[8:_PACK_HEADER]) == 0


def read_bundle(content: bytes) -> Bundle:
    """Verify the framing of a bundle: nothing in it is trusted, and nothing of it may be missing."""
    if not content.startswith(_SIGNATURE):
        raise BundleRefused("it does not start as a bundle of version 2")
    end = content.find(b"\n\n", 0, _MAX_HEADER)
    if end < 0:
        raise BundleRefused("its header does not end")
    lines = content[len(_SIGNATURE) : end].decode(errors="replace").splitlines()
    pack = memoryview(content)[end + 2 :]
    _require_complete(pack)
    needed = [line[1:].split(" ")[0] for line in lines if line.startswith("-")]
    refs = dict(_read_ref(line) for line in lines if line and not line.startswith("-"))
    if len(refs) > _MAX_REFS or not all(map(_OID.fullmatch, needed)):
        raise BundleRefused("its header is not valid")
    return Bundle(prerequisites=needed, refs=refs, pack=pack)


def _read_ref(line: str) -> tuple[str, str]:
    commit, _, ref = line.partition(" ")
    if _OID.fullmatch(commit) is None or not is_ref(ref):
        raise BundleRefused(f"its header has the line {line[:200]!r}")
    return ref, commit


def is_ref(name: str) -> bool:
    """Tell whether git accepts a full ref name."""
    return (
        _REF.fullmatch(name) is not None
        and ".." not in name
        and "@{" not in name
        and not any(part.endswith((".lock", ".")) for part in name.split("/"))
    )


def _require_complete(pack: memoryview) -> None:
    if len(pack) < _PACK_HEADER + _TRAILER or pack[:4] != _PACK:
        raise BundleRefused("it has no pack")
    digest = hashlib.sha1(pack[:-_TRAILER], usedforsecurity=False).digest()
    if digest != pack[-_TRAILER:]:
        raise BundleRefused("the checksum of its pack does not match")
