"""Where the documents of Forgejo and Gitea differ from GitHub's."""

from collections.abc import Sequence
from datetime import datetime

from sandbox_server.domain.tasks.forges import CheckFacts, Review, ReviewComment
from sandbox_server.forges.connection.answers import ForgeModel
from sandbox_server.forges.github.models import User, conclusion_of

_STATES = {
    "APPROVED": "approved",
    "REQUEST_CHANGES": "changes_requested",
    "COMMENT": "commented",
}


class StatusDocument(ForgeModel):
    id: int
    context: str
    status: str
    description: str | None = None
    target_url: str | None = None

    def facts(self) -> CheckFacts:
        # A warning does not block.
        state = "neutral" if self.status == "warning" else self.status
        return CheckFacts(
            external_id=f"status/{self.context}",
            name=self.context,
            origin="status",
            is_done=self.status != "pending",
            conclusion=conclusion_of(state),
            url=self.target_url,
            summary=self.description or "",
        )


class CombinedStatus(ForgeModel):
    statuses: Sequence[StatusDocument] = ()


class ReviewDocument(ForgeModel):
    id: int
    user: User | None = None
    state: str
    body: str | None = None
    submitted_at: datetime | None = None
    dismissed: bool = False

    @property
    def is_submitted(self) -> bool:
        return self.state in _STATES

    def review(self, comments: Sequence[ReviewComment] = ()) -> Review:
        return Review(
            id=str(self.id),
            author=(self.user or User()).login,
            state="dismissed" if self.dismissed else _STATES.get(self.state, "commented"),
            body=self.body or "",
            at=self.submitted_at,
            comments=comments,
        )


class ReviewCommentDocument(ForgeModel):
    id: int
    body: str = ""
    user: User | None = None
    path: str | None = None
    position: int | None = None
    diff_hunk: str = ""
    created_at: datetime
    html_url: str | None = None

    def comment(self) -> ReviewComment:
        return ReviewComment(
            id=str(self.id),
            author=(self.user or User()).login,
            body=self.body,
            at=self.created_at,
            url=self.html_url,
            thread_id=str(self.id),
            path=self.path,
            line=self.position,
            hunk=self.diff_hunk,
        )
