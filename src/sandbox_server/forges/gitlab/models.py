"""The fields of GitLab's REST API (v4) that the server reads."""

from collections.abc import Sequence
from datetime import date, datetime

from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    CheckFacts,
    Comment,
    Labelling,
    PullFacts,
    PullLifecycle,
    RepositoryFacts,
    SubjectComment,
)
from sandbox_server.forges.connection.answers import ForgeModel

DEVELOPER = 30
_MAINTAINER = 40
_DONE = frozenset({"success", "failed", "canceled", "skipped"})
_CONCLUSIONS = {
    "success": CheckConclusion.SUCCESS,
    "failed": CheckConclusion.FAILURE,
    "canceled": CheckConclusion.CANCELLED,
    "skipped": CheckConclusion.SKIPPED,
}
_SUBJECTS = {"Issue": "issues", "MergeRequest": "merge_requests"}
_LIFECYCLES = {
    "opened": PullLifecycle.OPEN,
    "locked": PullLifecycle.OPEN,
    "closed": PullLifecycle.CLOSED,
    "merged": PullLifecycle.MERGED,
}


class User(ForgeModel):
    id: int = 0
    username: str = "ghost"
    bot: bool = False

    @property
    def is_bot(self) -> bool:
        return self.bot or (
            self.username.startswith(("project_", "group_")) and "_bot" in self.username
        )


class Access(ForgeModel):
    access_level: int = 0


class Permissions(ForgeModel):
    project_access: Access | None = None
    group_access: Access | None = None

    @property
    def level(self) -> int:
        found = (self.project_access, self.group_access)
        return max((each.access_level for each in found if each is not None), default=0)


class Statistics(ForgeModel):
    repository_size: int | None = None


class ProjectDocument(ForgeModel):
    id: int
    path_with_namespace: str
    default_branch: str | None = None
    visibility: str = "private"
    web_url: str = ""
    permissions: Permissions = Permissions()
    statistics: Statistics = Statistics()

    def facts(self) -> RepositoryFacts:
        held = {"pull": 0, "push": DEVELOPER, "admin": _MAINTAINER}
        level = self.permissions.level
        return RepositoryFacts(
            external_id=str(self.id),
            full_name=self.path_with_namespace,
            default_branch=self.default_branch or "main",
            private=self.visibility != "public",
            url=self.web_url,
            size_bytes=self.statistics.repository_size,
            permissions=frozenset(name for name, least in held.items() if level >= least),
        )


class IssueDocument(ForgeModel):
    iid: int
    title: str
    description: str | None = None
    author: User | None = None
    web_url: str = ""
    state: str = "opened"
    labels: Sequence[str] = ()


class Position(ForgeModel):
    new_path: str | None = None
    new_line: int | None = None
    old_line: int | None = None


class NoteDocument(ForgeModel):
    id: int
    body: str = ""
    author: User | None = None
    created_at: datetime
    updated_at: datetime | None = None
    system: bool = False
    position: Position | None = None

    def comment(self, *, of: str) -> Comment:
        user = self.author or User()
        return Comment(
            id=f"{of}/notes/{self.id}",
            author=user.username,
            author_is_bot=user.is_bot,
            body=self.body,
            at=self.created_at,
        )


class LabelDocument(ForgeModel):
    name: str


class LabelEventDocument(ForgeModel):
    action: str
    label: LabelDocument | None = None
    user: User | None = None
    created_at: datetime

    def is_about(self, label: str) -> bool:
        return self.label is not None and self.label.name.lower() == label.lower()

    def labelling(self, number: int, label: str) -> Labelling:
        user = self.user or User()
        return Labelling(
            number=number,
            label=label,
            actor=user.username,
            actor_is_bot=user.is_bot,
            at=self.created_at,
        )


class EventNote(NoteDocument):
    noteable_type: str = ""
    noteable_iid: int | None = None


class NoteEventDocument(ForgeModel):
    note: EventNote | None = None
    created_at: datetime | None = None

    def is_before(self, instant: datetime) -> bool:
        return self.created_at is not None and self.created_at < instant

    def subject_comment(self) -> SubjectComment | None:
        note = self.note
        if note is None or note.noteable_iid is None or note.noteable_type not in _SUBJECTS:
            return None
        of = f"{_SUBJECTS[note.noteable_type]}/{note.noteable_iid}"
        return SubjectComment(
            **vars(note.comment(of=of)),
            number=note.noteable_iid,
            is_on_pull=note.noteable_type == "MergeRequest",
        )


class MergeRequestDocument(ForgeModel):
    iid: int
    web_url: str = ""
    state: str
    draft: bool | None = None
    work_in_progress: bool | None = None
    title: str
    description: str | None = None
    source_branch: str
    target_branch: str
    sha: str | None = None
    source_project_id: int | None = None
    updated_at: datetime
    detailed_merge_status: str | None = None
    has_conflicts: bool | None = None
    author: User | None = None

    def facts(self) -> PullFacts:
        return PullFacts(
            number=self.iid,
            url=self.web_url,
            lifecycle=_LIFECYCLES.get(self.state, PullLifecycle.CLOSED),
            draft=bool(self.draft or self.work_in_progress),
            title=self.title,
            body=self.description or "",
            head_ref=self.source_branch,
            head_sha=self.sha or "",
            head_repository_id=None
            if self.source_project_id is None
            else str(self.source_project_id),
            base_ref=self.target_branch,
            updated_at=self.updated_at,
            mergeable=self._mergeable,
            author=(self.author or User()).username,
        )

    @property
    def _mergeable(self) -> bool | None:
        if self.has_conflicts:
            return False
        is_known = self.detailed_merge_status not in (None, "checking", "unchecked", "preparing")
        return True if is_known else None


class StatusDocument(ForgeModel):
    id: int
    name: str
    status: str
    description: str | None = None
    target_url: str | None = None
    allow_failure: bool = False
    pipeline_id: int | None = None

    def facts(self) -> CheckFacts:
        conclusion = _CONCLUSIONS.get(self.status)
        if self.allow_failure and conclusion is CheckConclusion.FAILURE:
            conclusion = CheckConclusion.NEUTRAL
        is_job = "/jobs/" in (self.target_url or "")
        return CheckFacts(
            external_id=str(self.id),
            name=self.name,
            origin="job" if is_job else "status",
            is_done=self.status in _DONE,
            conclusion=conclusion,
            url=self.target_url,
            summary=self.description or "",
        )


class Member(User):
    access_level: int = 0


class TokenDocument(ForgeModel):
    scopes: Sequence[str] = ()
    expires_at: date | None = None


class DiscussionDocument(ForgeModel):
    id: str = ""
    notes: Sequence[NoteDocument] = ()

    def comments(self, *, of: str) -> list[Comment]:
        return [note.comment(of=f"{of}/{self.id}") for note in self.notes]
