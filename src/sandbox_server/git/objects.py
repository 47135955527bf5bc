import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sandbox_server.domain.errors import BundleRefused, CommitNotFound, GitError
from sandbox_server.git.bundles import MAX_BUNDLE, Bundle, read_bundle
from sandbox_server.git.diffs import ChangedFile, DiffText, parse_changes
from sandbox_server.git.process import GitLimits, GitOutput, run_git

SHA = re.compile(r"[0-9a-f]{40}")
MAX_DIFF = 2 * 2**20
MAX_COMMITS = 1000

_MOST_CHANGES = 16 * 2**20
_FIELD, _RECORD = "\x1f", "\x1e"
_LOG_FORMAT = "%H%x1f%T%x1f%P%x1f%an%x1f%ae%x1f%aI%x1f%s%x1f%b%x1e"
# Objects of a sandbox are checked like a push, except for flaws that old repositories have in their history.
_TOLERATED = ("badTimezone", "missingSpaceBeforeDate", "missingEmail", "zeroPaddedFilemode")
STRICT = "--strict=" + ",".join(f"{name}=ignore" for name in _TOLERATED)
_CONFLICT = 1


@dataclass(frozen=True, kw_only=True)
class CommitFacts:
    """A commit, for lists and for rewriting."""

    sha: str
    tree: str
    parents: Sequence[str]
    author: str
    email: str
    at: datetime
    subject: str
    body: str

    @property
    def message(self) -> str:
        return f"{self.subject}\n\n{self.body}".strip()


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The result of a trial merge of two commits."""

    tree: str | None
    conflicts: Sequence[str]
    """Paths; empty if it merges."""


class GitObjects:
    """Objects of a bare repository on the server, read, compared and taken in by git."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def git(
        self,
        *args: str,
        stdin: bytes | None = None,
        envs: Mapping[str, str] | None = None,
        accept: Collection[int] = (0,),
        most: int = _MOST_CHANGES,
        truncate: bool = False,
    ) -> GitOutput:
        """Run git here; for what has no method."""
        return await run_git(
            *args,
            directory=self.path,
            stdin=stdin,
            envs=envs,
            accept=accept,
            truncate=truncate,
            limits=GitLimits(output=most),
        )

    async def has(self, sha: str) -> bool:
        found = await self.git("cat-file", "-e", f"{sha_of(sha)}^{{commit}}", accept=(0, 1, 128))
        return found.exit_code == 0

    async def tree_of(self, sha: str) -> str:
        found = await self.git(
            "rev-parse", "--verify", "--quiet", f"{sha_of(sha)}^{{tree}}", accept=(0, 1, 128)
        )
        if found.exit_code:
            raise CommitNotFound(sha)
        return found.text

    async def is_ancestor(self, old: str, new: str) -> bool:
        found = await self.git(
            "merge-base", "--is-ancestor", sha_of(old), sha_of(new), accept=(0, 1)
        )
        return found.exit_code == 0

    async def merge_base(self, a: str, b: str) -> str | None:
        found = await self.git("merge-base", sha_of(a), sha_of(b), accept=(0, 1))
        return found.text or None

    async def import_bundle(self, content: bytes) -> Bundle:
        """Check and take in all objects of a bundle; its commits are kept by refs here."""
        bundle = read_bundle(content)
        missing = [sha for sha in bundle.prerequisites if not await self.has(sha)]
        if missing:
            raise CommitNotFound(missing[0])
        try:
            if not bundle.is_empty:
                await self._index(bundle)
            await self._require_connected(bundle)
        except GitError as error:
            raise BundleRefused(error.said) from None
        await self._keep(bundle.refs.values())
        return bundle

    async def _index(self, bundle: Bundle) -> None:
        limit = f"--max-input-size={2 * MAX_BUNDLE}"
        await self.git(
            "index-pack", "--stdin", "--fix-thin", STRICT, limit, stdin=bytes(bundle.pack)
        )

    async def _require_connected(self, bundle: Bundle) -> None:
        tips = "\n".join(bundle.refs.values())
        options = ("--objects", "--stdin", "--not", "--all", "--alternate-refs")
        await self.git("rev-list", "--quiet", *options, stdin=tips.encode(), most=0)

    async def _keep(self, commits: Collection[str]) -> None:
        lines = "".join(f"update refs/kept/{sha} {sha}\n" for sha in set(commits))
        await self.git("update-ref", "--stdin", stdin=lines.encode())

    async def diff(
        self, old: str, new: str, *, path: str | None = None, limit: int = MAX_DIFF
    ) -> DiffText:
        """Compare two commits as text; binary files are only named."""
        options = ("--no-color", "--no-ext-diff", "--no-textconv", "--find-renames=60%", "-l1000")
        where = () if path is None else ("--", f":(top,literal){path}")
        said = await self.git(
            "diff", *options, sha_of(old), sha_of(new), *where, most=limit, truncate=True
        )
        return DiffText(text=said.stdout.decode(errors="replace"), truncated=said.truncated)

    async def changed_files(self, old: str, new: str) -> Sequence[ChangedFile]:
        """List the files that differ, with added and removed lines."""
        options = ("-r", "-z", "--raw", "--numstat", "--find-renames=60%", "-l1000", "--no-abbrev")
        return parse_changes(
            (await self.git("diff-tree", *options, sha_of(old), sha_of(new))).stdout
        )

    async def log(self, base: str, head: str, *, limit: int = MAX_COMMITS) -> Sequence[CommitFacts]:
        """List the commits of `head` that `base` and the mirror do not have, oldest first."""
        told = (f"--format={_LOG_FORMAT}", f"--max-count={limit}", "--topo-order", "--reverse")
        said = await self.git(
            "log",
            *told,
            sha_of(head),
            "--not",
            sha_of(base),
            "--alternate-refs",
            most=_MOST_CHANGES,
        )
        records = said.stdout.decode(errors="replace").split(_RECORD)
        return [_read_commit(record) for record in records if record.strip()]

    async def merge(self, ours: str, theirs: str) -> Merge:
        """Merge two commits without files; conflicts are told, and nothing is changed."""
        options = ("--write-tree", "--name-only", "--no-messages", "-z")
        said = await self.git("merge-tree", *options, sha_of(ours), sha_of(theirs), accept=(0, 1))
        tree, *paths = said.stdout.decode(errors="replace").rstrip("\0").split("\0")
        if said.exit_code == _CONFLICT:
            return Merge(tree=None, conflicts=sorted(set(filter(None, paths))))
        return Merge(tree=tree.strip(), conflicts=())

    async def merge_conflicts(self, ours: str, theirs: str) -> Sequence[str]:
        """List the paths in which two commits conflict."""
        return (await self.merge(ours, theirs)).conflicts


def sha_of(given: str) -> str:
    """Refuse what git could take for an option or another name."""
    if SHA.fullmatch(given) is None:
        raise CommitNotFound(given)
    return given


def _read_commit(record: str) -> CommitFacts:
    sha, tree, parents, author, email, at, subject, body = record.lstrip("\n").split(_FIELD, 7)
    return CommitFacts(
        sha=sha,
        tree=tree,
        parents=parents.split(),
        author=author,
        email=email,
        at=datetime.fromisoformat(at),
        subject=subject,
        body=body.strip(),
    )
