"""Forges (GitHub, GitLab, Forgejo, plain git servers) and what the server reads from them, in words common to all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"
    FORGEJO = "forgejo"
    GIT = "git"
    """A git server without an API: branches can be pushed, and nothing else."""


class ForgeAuth(StrEnum):
    APP = "app"
    """A GitHub App: tokens are minted per repository and expire after an hour."""
    TOKEN = "token"  # noqa: S105 - the name of a method
    NONE = "none"


class GitAccess(StrEnum):
    READ = "read"
    WRITE = "write"
    WORKFLOWS = "workflows"
    """Write, also to the files of CI workflows, which GitHub protects by a permission of their own."""


@dataclass(frozen=True, kw_only=True)
class GitCredential:
    """The URL of a repository for git, and the password for it; never given to a sandbox."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RepositoryFacts:
    """A repository as its forge describes it."""

    external_id: str
    """Stays the same when the repository is renamed."""
    full_name: str
    default_branch: str
    private: bool
    url: str
    size_bytes: int | None = None
    installation_id: str | None = None
    permissions: frozenset[str] = frozenset()
    """Of `pull`, `push`, `admin`: what the credential may do. Empty: the forge does not tell."""

    @property
    def may_push(self) -> bool | None:
        return "push" in self.permissions if self.permissions else None


class Subject(StrEnum):
    """The object of a comment or label; only GitLab numbers issues and pull requests separately."""

    ISSUE = "issue"
    PULL = "pull"


@dataclass(frozen=True, kw_only=True)
class Comment:
    id: str
    """As `edit_comment` takes it; opaque."""
    author: str
    body: str
    at: datetime
    url: str | None = None
    author_is_bot: bool = False


@dataclass(frozen=True, kw_only=True)
class SubjectComment(Comment):
    """A comment with the issue or pull request that it is on."""

    number: int
    is_on_pull: bool


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """That somebody added a label to an issue."""

    number: int
    label: str
    actor: str
    at: datetime
    actor_is_bot: bool = False


@dataclass(frozen=True, kw_only=True)
class ReviewComment(Comment):
    """A comment on a line of a pull request."""

    thread_id: str
    """As `reply_to_review` takes it."""
    path: str | None = None
    line: int | None = None
    hunk: str = ""


@dataclass(frozen=True, kw_only=True)
class Review:
    """A submitted review with all of its comments."""

    id: str
    author: str
    state: str
    """`approved`, `changes_requested`, `commented` or `dismissed`."""
    body: str
    at: datetime | None
    author_is_bot: bool = False
    comments: Sequence[ReviewComment] = ()


@dataclass(frozen=True, kw_only=True)
class Issue:
    number: int
    title: str
    body: str
    author: str
    url: str
    is_open: bool
    labels: Sequence[str] = ()
    comments: Sequence[Comment] = ()
    is_pull: bool = False
    """A pull request that a task is about, as forges treat it: as an issue."""


class PullLifecycle(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, kw_only=True)
class PullFacts:
    """A pull request (GitLab: merge request) as its forge describes it."""

    number: int
    url: str
    lifecycle: PullLifecycle
    draft: bool
    title: str
    body: str
    head_ref: str
    head_sha: str
    head_repository_id: str | None
    """None if the repository of the head was deleted."""
    base_ref: str
    updated_at: datetime
    mergeable: bool | None = None
    """None while the forge has not computed it."""
    author: str | None = None
    review: str | None = None
    """`approved`, `changes_requested` or None."""


@dataclass(frozen=True, kw_only=True)
class PullDraft:
    """A pull request to open, or the fields to change."""

    title: str
    body: str
    head_ref: str
    base_ref: str
    draft: bool = False
    labels: Sequence[str] = ()
    reviewers: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PullByPush:
    """How a push alone opens a pull request, where there is no API token."""

    ref: str
    """The ref to push the head to."""
    options: Sequence[str]
    """As `git push -o` takes them."""
    heads: str
    """Pattern of the refs at which the forge shows the heads of its pull requests; `*` is the number."""
    page: str
    """Path of the page of pull request `{number}`, below the repository's."""


class CheckConclusion(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    NEUTRAL = "neutral"
    STALE = "stale"
    TIMED_OUT = "timed_out"
    ACTION_REQUIRED = "action_required"


@dataclass(frozen=True, kw_only=True)
class CheckFacts:
    """A check run, workflow job, pipeline job or commit status of one commit."""

    external_id: str
    name: str
    origin: str
    """`check-run`, `job` or `status`: where its log is found."""
    is_done: bool
    conclusion: CheckConclusion | None = None
    url: str | None = None
    summary: str = ""


@dataclass(frozen=True, kw_only=True)
class Validated(Generic[T]):
    """An answer of the forge and its validator (ETag), with which an unchanged answer costs no quota."""

    value: T | None
    """None: unchanged since the validator that was sent."""
    validator: str | None
    read_until: datetime | None = None
    """Of a list that was not read to its end: what is left is from this instant or later."""


class DeliveryKind(StrEnum):
    """The content of a webhook delivery, in terms common to all forges."""

    ISSUE = "issue"
    COMMENT = "comment"
    PULL = "pull"
    REVIEW = "review"
    REVIEW_COMMENT = "review-comment"
    CHECK = "check"
    PUSH = "push"
    INSTALLATION = "installation"
    PING = "ping"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A webhook delivery whose signature was verified."""

    id: str
    kind: DeliveryKind
    action: str
    repository_id: str | None = None
    """The external id of the repository."""
    repository_name: str | None = None
    installation_id: str | None = None
    subject: str | None = None
    """The number of the issue or pull request, the sha of the checks, or the ref of the push."""
    actor: str | None = None
    actor_is_bot: bool = False
    body: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class MissingPermission:
    """A permission that the server needs and the credential lacks."""

    name: str
    """As the forge names it, for example `pull_requests`."""
    access: str
    """`read` or `write`."""
    needed_for: str
    account: str | None = None
    """The installation that lacks it."""
    is_required: bool = True
    """False: tasks work without it, and do less."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An installation of a GitHub App."""

    id: str
    account: str
    all_repositories: bool
    permissions: Mapping[str, str]
    suspended: bool = False


@dataclass(frozen=True, kw_only=True)
class CredentialFacts:
    """The kind of a credential, and its permissions."""

    login: str | None = None
    """As whom the server writes."""
    user_id: str | None = None
    installations: Sequence[Installation] = ()
    missing: Sequence[MissingPermission] = ()
    expires_at: datetime | None = None
