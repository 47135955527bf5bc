import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.git.objects import CommitFacts, GitObjects

Wording = Callable[[CommitFacts], str]
"""Returns the message that a commit is to have."""

_TYPES = "build|chore|ci|docs|feat|fix|perf|refactor|revert|style|test"
_CONVENTIONAL = re.compile(rf"({_TYPES})(\([^()\r\n]+\))?!?: \S.*")


@dataclass(frozen=True, kw_only=True)
class Identity:
    name: str
    email: str


def is_conventional(subject: str) -> bool:
    """Tell whether a subject follows Conventional Commits; merges do by themselves."""
    return _CONVENTIONAL.fullmatch(subject) is not None or subject.startswith("Merge ")


async def rewrite(
    repository: GitObjects, base: str, head: str, reword: Wording, *, committer: Identity
) -> str:
    """Make the commits between `base` and `head` again; unchanged ones before the first change stay as they are."""
    made: dict[str, str] = {}
    for commit in await repository.log(base, head):
        message = reword(commit)
        parents = [made.get(parent, parent) for parent in commit.parents]
        if message.strip() == commit.message and parents == [*commit.parents]:
            continue
        author = Identity(name=commit.author, email=commit.email)
        made[commit.sha] = await _commit(
            repository,
            commit.tree,
            parents,
            message,
            author=author,
            committer=committer,
            at=commit.at,
        )
    return made.get(head, head)


async def squash(
    repository: GitObjects,
    base: str,
    head: str,
    message: str,
    *,
    author: Identity,
    committer: Identity,
) -> str:
    """Make one commit above `base` with the files of `head`."""
    tree = await repository.tree_of(head)
    commits = await repository.log(base, head)
    at = commits[-1].at if commits else None
    return await _commit(
        repository, tree, [base], message, author=author, committer=committer, at=at
    )


async def _commit(
    repository: GitObjects,
    tree: str,
    parents: list[str],
    message: str,
    *,
    author: Identity,
    committer: Identity,
    at: datetime | None,
) -> str:
    # The same commits are made again after a crash: the time is that of the original.
    when = (
        {}
        if at is None
        else {"GIT_AUTHOR_DATE": at.isoformat(), "GIT_COMMITTER_DATE": at.isoformat()}
    )
    envs = {
        "GIT_AUTHOR_NAME": author.name,
        "GIT_AUTHOR_EMAIL": author.email,
        "GIT_COMMITTER_NAME": committer.name,
        "GIT_COMMITTER_EMAIL": committer.email,
        **when,
    }
    above = [option for parent in parents for option in ("-p", parent)]
    said = await repository.git(
        "commit-tree", tree, *above, stdin=f"{message.strip()}\n".encode(), envs=envs
    )
    return said.text
