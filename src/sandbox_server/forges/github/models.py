"""The fields of GitHub's REST API that the server reads."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import AliasChoices, Field

from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    CheckFacts,
    Comment,
    Issue,
    Labelling,
    PullFacts,
    PullLifecycle,
    RepositoryFacts,
    Review,
    ReviewComment,
    SubjectComment,
)
from sandbox_server.forges.connection.answers import ForgeModel

ACTIONS = "github-actions"
_GHOST = "ghost"


class User(ForgeModel):
    login: str = _GHOST
    id: int = 0
    type: str = "User"

    @property
    def is_bot(self) -> bool:
        return self.type == "Bot"


class Label(ForgeModel):
    name: str


class RepositoryDocument(ForgeModel):
    id: int
    full_name: str
    default_branch: str = "main"
    private: bool = True
    html_url: str = ""
    size: int | None = None
    permissions: Mapping[str, bool] = Field(default_factory=dict)

    def facts(self, *, installation_id: str | None = None) -> RepositoryFacts:
        return RepositoryFacts(
            external_id=str(self.id),
            full_name=self.full_name,
            default_branch=self.default_branch,
            private=self.private,
            url=self.html_url,
            size_bytes=None if self.size is None else self.size * 1024,
            installation_id=installation_id,
            permissions=frozenset(name for name, may in self.permissions.items() if may),
        )


class IssueDocument(ForgeModel):
    number: int
    title: str
    body: str | None = None
    user: User | None = None
    html_url: str = ""
    state: str = "open"
    labels: Sequence[Label | str] = ()
    pull_request: Mapping[str, object] | None = None

    def issue(self, comments: Sequence[Comment]) -> Issue:
        return Issue(
            number=self.number,
            title=self.title,
            body=self.body or "",
            author=(self.user or User()).login,
            url=self.html_url,
            is_open=self.state == "open",
            labels=tuple(each if isinstance(each, str) else each.name for each in self.labels),
            comments=comments,
        )


class CommentDocument(ForgeModel):
    id: int
    body: str | None = None
    user: User | None = None
    created_at: datetime
    html_url: str | None = None

    def comment(self) -> Comment:
        user = self.user or User()
        return Comment(
            id=str(self.id),
            author=user.login,
            author_is_bot=user.is_bot,
            body=self.body or "",
            at=self.created_at,
            url=self.html_url,
        )


class SubjectCommentDocument(CommentDocument):
    """A comment in a list of all of a repository; Forgejo has two fields for what it is on."""

    issue_url: str = ""
    pull_request_url: str = ""

    def subject_comment(self) -> SubjectComment | None:
        number = (self.issue_url or self.pull_request_url).rpartition("/")[2]
        if not number.isdecimal():
            return None
        is_on_pull = bool(self.pull_request_url) or "/pull/" in (self.html_url or "")
        return SubjectComment(**vars(self.comment()), number=int(number), is_on_pull=is_on_pull)


class IssueEventDocument(ForgeModel):
    """An event of an issue; Forgejo has the type in another field, and says `1` where a label was added."""

    event: str = Field(default="", validation_alias=AliasChoices("event", "type"))
    label: Label | None = None
    body: str | None = None
    actor: User | None = Field(default=None, validation_alias=AliasChoices("actor", "user"))
    created_at: datetime

    def is_about(self, label: str) -> bool:
        return self.label is not None and self.label.name.lower() == label.lower()

    def labelling(self, number: int, label: str) -> Labelling:
        actor = self.actor or User()
        return Labelling(
            number=number,
            label=label,
            actor=actor.login,
            actor_is_bot=actor.is_bot,
            at=self.created_at,
        )


class ReviewCommentDocument(CommentDocument):
    path: str | None = None
    line: int | None = None
    original_line: int | None = None
    diff_hunk: str = ""
    in_reply_to_id: int | None = None
    pull_request_review_id: int | None = None

    def comment(self) -> ReviewComment:
        user = self.user or User()
        return ReviewComment(
            id=str(self.id),
            author=user.login,
            author_is_bot=user.is_bot,
            body=self.body or "",
            at=self.created_at,
            url=self.html_url,
            thread_id=str(self.in_reply_to_id or self.id),
            path=self.path,
            line=self.line or self.original_line,
            hunk=self.diff_hunk,
        )


class ReviewDocument(ForgeModel):
    id: int
    user: User | None = None
    state: str
    body: str | None = None
    submitted_at: datetime | None = None

    def review(self, comments: tuple[ReviewComment, ...] = ()) -> Review:
        user = self.user or User()
        return Review(
            id=str(self.id),
            author=user.login,
            author_is_bot=user.is_bot,
            state=self.state.lower(),
            body=self.body or "",
            at=self.submitted_at,
            comments=comments,
        )


class OfRepository(ForgeModel):
    id: int


class Head(ForgeModel):
    ref: str
    sha: str
    repo: OfRepository | None = None


class PullDocument(ForgeModel):
    number: int
    node_id: str = ""
    html_url: str = ""
    state: str
    merged: bool | None = None
    merged_at: datetime | None = None
    draft: bool | None = False
    title: str
    body: str | None = None
    head: Head
    base: Head
    updated_at: datetime
    mergeable: bool | None = None
    user: User | None = None

    def facts(self) -> PullFacts:
        return PullFacts(
            number=self.number,
            url=self.html_url,
            lifecycle=self._lifecycle,
            draft=bool(self.draft),
            title=self.title,
            body=self.body or "",
            head_ref=self.head.ref,
            head_sha=self.head.sha,
            head_repository_id=None if self.head.repo is None else str(self.head.repo.id),
            base_ref=self.base.ref,
            updated_at=self.updated_at,
            mergeable=self.mergeable,
            author=(self.user or User()).login,
        )

    @property
    def _lifecycle(self) -> PullLifecycle:
        if self.merged or self.merged_at is not None:
            return PullLifecycle.MERGED
        return PullLifecycle.OPEN if self.state == "open" else PullLifecycle.CLOSED


class App(ForgeModel):
    slug: str = ""


class CheckOutput(ForgeModel):
    title: str | None = None
    summary: str | None = None
    text: str | None = None


class CheckRunDocument(ForgeModel):
    id: int
    name: str
    status: str = "queued"
    conclusion: str | None = None
    html_url: str | None = None
    app: App | None = None
    output: CheckOutput = CheckOutput()

    def facts(self) -> CheckFacts:
        is_job = self.app is not None and self.app.slug == ACTIONS
        return CheckFacts(
            external_id=str(self.id),
            name=self.name,
            origin="job" if is_job else "check-run",
            is_done=self.status == "completed",
            conclusion=conclusion_of(self.conclusion),
            url=self.html_url,
            summary=self.output.title or self.output.summary or "",
        )


class CheckRuns(ForgeModel):
    check_runs: list[CheckRunDocument]


class StatusDocument(ForgeModel):
    id: int
    context: str
    state: str
    description: str | None = None
    target_url: str | None = None

    def facts(self) -> CheckFacts:
        return CheckFacts(
            external_id=f"status/{self.context}",
            name=self.context,
            origin="status",
            is_done=self.state != "pending",
            conclusion=conclusion_of(self.state),
            url=self.target_url,
            summary=self.description or "",
        )


class CombinedStatus(ForgeModel):
    statuses: Sequence[StatusDocument] = ()


class Annotation(ForgeModel):
    path: str = ""
    start_line: int | None = None
    annotation_level: str | None = None
    message: str | None = None


class JobDocument(ForgeModel):
    run_id: int
    run_attempt: int = 1


class WorkflowRunDocument(ForgeModel):
    run_attempt: int = 1


class Permission(ForgeModel):
    permission: str = "none"


class InstallationAccount(ForgeModel):
    login: str = ""
    slug: str = ""


class InstallationDocument(ForgeModel):
    id: int
    account: InstallationAccount | None = None
    repository_selection: str = "selected"
    permissions: Mapping[str, str] = Field(default_factory=dict)
    suspended_at: datetime | None = None


class AppDocument(ForgeModel):
    slug: str
    name: str = ""


class MintedDocument(ForgeModel):
    token: str
    expires_at: datetime


_CONCLUSIONS = {
    **{each.value: each for each in CheckConclusion},
    "error": CheckConclusion.FAILURE,
    "startup_failure": CheckConclusion.FAILURE,
}


def conclusion_of(text: str | None) -> CheckConclusion | None:
    """Read the conclusion of a check run or the state of a status; None while it is pending."""
    return _CONCLUSIONS.get(text or "")
