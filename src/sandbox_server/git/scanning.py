import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.git.lfs.pointers import MAX_POINTER, read_pointers
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.git.objects import GitObjects, sha_of

MAX_FILE = 100 * 2**20
"""GitHub refuses a push with a larger file."""

_MOST_PATCH = 32 * 2**20
_MOST_OBJECTS = 64 * 2**20
_MOST_FINDINGS = 100
_LFS_POINTER = "version https://git-lfs.github.com/spec/v1"
_SHORTEST_POINTER = 100
_LONGEST_NAME = 200
_LFS_OID = "oid sha256:"
"""All that a change of a pointer adds, with the size."""
_HUNK = re.compile(r"@@ -\S+ \+(\d+)")
_NEW_FILE = re.compile(r'\+\+\+ "?b/(.*?)"?\t?')

# Formats that their issuers made to be recognised: a match is hardly ever anything else.
_SECRETS = {
    "private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255})\b",
    "GitLab token": r"\bglpat-[A-Za-z0-9_\-]{20,}",
    "AWS access key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "Google API key": r"\bAIza[A-Za-z0-9_\-]{35}\b",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "Stripe key": r"\b[rs]k_live_[A-Za-z0-9]{20,}\b",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_\-]{20,}",
    "OpenAI key": r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9]{20,}T3BlbkFJ[A-Za-z0-9]{20,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "PyPI token": r"\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_\-]{50,}",
    "E2B key": r"\be2b_[0-9a-f]{40}\b",
    "password in a URL": r"[a-z][a-z0-9+.\-]*://[^\s/:@'\"$<>{}]+:[^\s/:@'\"$<>{}*]{3,}@[A-Za-z0-9.\-]+",
}
_ANY_SECRET = re.compile(
    "|".join(f"(?P<s{number}>{pattern})" for number, pattern in enumerate(_SECRETS.values()))
)
_NAMES = tuple(_SECRETS)


@dataclass(frozen=True, kw_only=True)
class FoundSecret:
    """A line that looks like a secret; the secret itself is not repeated."""

    kind: str
    path: str
    line: int
    commit: str


@dataclass(frozen=True, kw_only=True)
class LargeFile:
    path: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Secrets, protected paths and large files in the commits to be published, intermediate ones included."""

    secrets: Sequence[FoundSecret] = ()
    large_files: Sequence[LargeFile] = ()
    protected_paths: Sequence[str] = ()
    submodules: Sequence[str] = ()
    lfs_pointers: Sequence[str] = ()
    is_complete: bool = True
    """False: there was too much to look through."""


async def scan(
    repository: GitObjects, base: str, head: str, *, protected: Sequence[str] = ()
) -> Findings:
    """Look through all commits of `head` that neither `base` nor the mirror has."""
    unpublished = (sha_of(head), "--not", sha_of(base), "--alternate-refs")
    patch = await _read_patch(repository, unpublished)
    return Findings(
        secrets=patch.secrets,
        large_files=await _find_large(repository, unpublished),
        protected_paths=await _find_protected(repository, unpublished, protected),
        submodules=sorted(patch.submodules),
        lfs_pointers=sorted(patch.lfs_pointers),
        is_complete=patch.is_complete,
    )


@dataclass
class _Patch:
    secrets: list[FoundSecret] = field(default_factory=list)
    submodules: set[str] = field(default_factory=set)
    lfs_pointers: set[str] = field(default_factory=set)
    is_complete: bool = True


async def _read_patch(repository: GitObjects, unpublished: Sequence[str]) -> _Patch:
    shown = ("--format=commit %H", "--patch", "--unified=0", "--diff-merges=first-parent")
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--submodule=short")
    said = await repository.git(
        "log", *shown, *plain, *unpublished, most=_MOST_PATCH, truncate=True
    )
    found = _Patch(is_complete=not said.truncated)
    for commit, path, number, text in _added_lines(said.stdout.decode(errors="replace")):
        if text.startswith("Subproject commit "):
            found.submodules.add(path)
        if text.startswith((_LFS_POINTER, _LFS_OID)):
            found.lfs_pointers.add(path)
        if len(found.secrets) < _MOST_FINDINGS and (kind := find_secret(text)) is not None:
            found.secrets.append(FoundSecret(kind=kind, path=path, line=number, commit=commit))
    return found


def find_secret(text: str) -> str | None:
    """Tell what kind of secret a line contains, if any."""
    match = _ANY_SECRET.search(text[:10_000])
    return None if match is None else _NAMES[int((match.lastgroup or "s0")[1:])]


def _added_lines(patch: str) -> Iterator[tuple[str, str, int, str]]:
    commit, path, number, in_header = "", "", 0, True
    for line in patch.split("\n"):
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line.startswith("diff --git "):
            in_header = True
        elif in_header and (new_file := _NEW_FILE.fullmatch(line)) is not None:
            path = new_file[1]
        elif (hunk := _HUNK.match(line)) is not None:
            number, in_header = int(hunk[1]), False
        elif not in_header and line.startswith("+"):
            yield commit, path, number, line[1:]
            number += 1


async def _find_large(repository: GitObjects, unpublished: Sequence[str]) -> Sequence[LargeFile]:
    listed = await repository.git("rev-list", "--objects", *unpublished, most=_MOST_OBJECTS)
    checked = await repository.git(
        "cat-file",
        "--batch-check=%(objecttype) %(objectsize) %(rest)",
        stdin=listed.stdout,
        most=_MOST_OBJECTS,
    )
    fields = (line.split(" ", 2) for line in checked.lines if line.startswith("blob "))
    return [
        LargeFile(path=path, size=int(size)) for _, size, path in fields if int(size) > MAX_FILE
    ]


async def _find_protected(
    repository: GitObjects, unpublished: Sequence[str], protected: Sequence[str]
) -> Sequence[str]:
    if not protected:
        return ()
    globs = [f":(top,glob){pattern}" for pattern in protected]
    shown = ("--format=", "--name-only", "-z", "--no-renames", "--diff-merges=first-parent")
    said = await repository.git("log", *shown, *unpublished, "--", *globs)
    return sorted(set(filter(None, said.stdout.decode(errors="replace").split("\0"))))


async def list_large_files(objects: GitObjects, head: str, *, base: str) -> Mapping[LfsObject, str]:
    """List what the commits above a base point to at their forge, with a path of each."""
    if await _find_other_server(objects, head) is not None:
        return {}
    revs = f"{sha_of(head)}\n^{sha_of(base)}\n".encode()
    said = await objects.git("rev-list", "--objects", "--stdin", stdin=revs, most=_MOST_OBJECTS)
    lines = (line.partition(" ") for line in said.stdout.decode(errors="replace").splitlines())
    paths = {name: path for name, _, path in lines if path}
    found = await _read_pointers(objects, [*paths])
    return {pointer: storable(paths[name]) for name, pointer in found}


async def _find_other_server(objects: GitObjects, commit: str) -> str | None:
    """Find the server that the repository's own configuration of Git LFS names, which is not ours to ask."""
    named = r"^(lfs\.(push)?url|remote\..*\.lfs(push)?url)$"
    blob = f"--blob={sha_of(commit)}:.lfsconfig"
    said = await objects.git("config", blob, "--get-regexp", named, accept=(0, 1, 128))
    if said.exit_code or not said.lines:
        return None
    url = said.lines[0].partition(" ")[2].strip()
    return storable(urlsplit(url).hostname or url)[:_LONGEST_NAME]


@dataclass(frozen=True)
class Pointers:
    """The Git LFS objects that the files of a commit point to."""

    objects: Sequence[LfsObject] = ()
    other_server: str | None = None
    """The server of Git LFS that the repository names instead of its forge; then nothing is listed."""


async def list_pointers(objects: GitObjects, commit: str) -> Pointers:
    """List what the files of a commit point to at their forge; without a look at them if no attribute names Git LFS."""
    attributes = ("--", ":(top,glob)**/.gitattributes")
    said = await objects.git(
        *("grep", "-q", "-F", "filter=lfs", sha_of(commit)), *attributes, accept=(0, 1)
    )
    if said.exit_code:
        return Pointers()
    other = await _find_other_server(objects, commit)
    if other is not None:
        return Pointers(other_server=other)
    listed = await objects.git(
        "ls-tree", "-r", "--format=%(objectname)", commit, most=_MOST_OBJECTS
    )
    found = {pointer for _, pointer in await _read_pointers(objects, listed.lines)}
    return Pointers(sorted(found, key=lambda each: each.oid))


async def _read_pointers(
    objects: GitObjects, names: Sequence[str]
) -> Sequence[tuple[str, LfsObject]]:
    kind = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    asked = "\n".join(names).encode()
    said = await objects.git("cat-file", kind, stdin=asked, most=_MOST_OBJECTS)
    small = [words[0] for words in map(str.split, said.lines) if _may_be_pointer(words)]
    asked = "\n".join(small).encode()
    batch = await objects.git("cat-file", "--batch", stdin=asked, most=_MOST_OBJECTS)
    return [*read_pointers(batch.stdout)]


def _may_be_pointer(words: Sequence[str]) -> bool:
    return (
        len(words) == 3  # noqa: PLR2004
        and words[1] == "blob"
        and _SHORTEST_POINTER <= int(words[2]) <= MAX_POINTER
    )
