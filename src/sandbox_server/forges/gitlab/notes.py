from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sandbox_server.domain.tasks.forges import (
    Comment,
    Issue,
    Labelling,
    RepositoryFacts,
    Subject,
    SubjectComment,
    Validated,
)
from sandbox_server.forges.connection.answers import second_of
from sandbox_server.forges.connection.token_forge import TokenForge
from sandbox_server.forges.gitlab.models import (
    DiscussionDocument,
    IssueDocument,
    LabelEventDocument,
    NoteDocument,
    NoteEventDocument,
    User,
)

_MOST_PAGES_OF_EVENTS = 100
_PATHS = {Subject.ISSUE: "issues", Subject.PULL: "merge_requests"}


class GitlabNotes(TokenForge):
    """Issues, and the comments and labels of issues and merge requests, which are numbered apart."""

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        answer = await self._api.get(
            f"/projects/{repository.external_id}/issues/{number}", about=f"Issue {number}"
        )
        issue = answer.read(IssueDocument)
        return Issue(
            number=issue.iid,
            title=issue.title,
            body=issue.description or "",
            author=(issue.author or User()).username,
            url=issue.web_url,
            is_open=issue.state == "opened",
            labels=tuple(issue.labels),
            comments=await self.list_comments(repository, number, on=Subject.ISSUE),
        )

    async def list_labellings(
        self,
        repository: RepositoryFacts,
        label: str,
        *,
        since: datetime,
        validator: str | None = None,
    ) -> Validated[tuple[Labelling, ...]]:
        pages = await self._api.list_pages(
            f"/projects/{repository.external_id}/issues",
            IssueDocument,
            about=f"Issues labelled {label}",
            params={
                "labels": label,
                "state": "opened",
                "updated_after": second_of(since),
                "per_page": 100,
            },
            validator=validator,
        )
        numbers = [each.iid for each in pages.items or ()]
        found = [await self._find_labelling(repository, number, label) for number in numbers]
        return pages.validated(found, since)

    async def _find_labelling(
        self, repository: RepositoryFacts, number: int, label: str
    ) -> Labelling | None:
        events = await self._api.list_all(
            f"/projects/{repository.external_id}/issues/{number}/resource_label_events",
            LabelEventDocument,
            about=f"Events of issue {number}",
        )
        added = [each for each in events if each.action == "add" and each.is_about(label)]
        return added[-1].labelling(number, label) if added else None

    async def list_new_comments(
        self, repository: RepositoryFacts, *, since: datetime, validator: str | None = None
    ) -> Validated[tuple[SubjectComment, ...]]:
        """List the events of comments: there is no list of the comments of a project."""
        pages = await self._api.list_pages(
            f"/projects/{repository.external_id}/events",
            NoteEventDocument,
            about="New comments",
            # Newest first, and events of later days than this one: hours cannot be given.
            params={
                "target_type": "note",
                "after": (since - timedelta(days=1)).date().isoformat(),
                "per_page": 100,
            },
            validator=validator,
            is_last=lambda event: event.is_before(since),
            most=_MOST_PAGES_OF_EVENTS,
        )
        return pages.validated([each.subject_comment() for each in pages.items or ()], since)

    async def list_comments(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        on: Subject = Subject.PULL,
        since: datetime | None = None,
    ) -> Sequence[Comment]:
        of = f"{_PATHS[on]}/{number}"
        notes = await self._api.list_all(
            f"/projects/{repository.external_id}/{of}/notes",
            NoteDocument,
            about=f"Comments of {number}",
            params={"sort": "asc", "order_by": "created_at"},
        )
        return [
            note.comment(of=of)
            for note in notes
            if not note.system and (since is None or (note.updated_at or note.created_at) >= since)
        ]

    async def comment(
        self, repository: RepositoryFacts, number: int, body: str, *, on: Subject = Subject.PULL
    ) -> Comment:
        of = f"{_PATHS[on]}/{number}"
        answer = await self._api.write(
            "POST",
            f"/projects/{repository.external_id}/{of}/notes",
            {"body": body},
            about=f"Comment on {number}",
        )
        return answer.read(NoteDocument).comment(of=of)

    async def comment_on_commit(self, repository: RepositoryFacts, sha: str, body: str) -> Comment:
        """Begin a discussion: comments outside of one cannot be edited."""
        of = f"repository/commits/{sha}/discussions"
        answer = await self._api.write(
            "POST",
            f"/projects/{repository.external_id}/{of}",
            {"body": body},
            about="Comment on a commit",
        )
        return answer.read(DiscussionDocument).comments(of=of)[0]

    async def find_commit_comment(
        self, repository: RepositoryFacts, sha: str, marker: str
    ) -> Comment | None:
        of = f"repository/commits/{sha}/discussions"
        path, about = f"/projects/{repository.external_id}/{of}", f"Comments of {sha[:12]}"
        found = await self._api.list_all(path, DiscussionDocument, about=about)
        own = [each for one in found for each in one.comments(of=of) if marker in each.body]
        return own[-1] if own else None

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment:
        answer = await self._api.write(
            "PUT",
            f"/projects/{repository.external_id}/{comment_id}",
            {"body": body},
            about=f"Comment {comment_id}",
        )
        return answer.read(NoteDocument).comment(of=comment_id.partition("/notes/")[0])

    async def add_labels(
        self,
        repository: RepositoryFacts,
        number: int,
        labels: Collection[str],
        *,
        on: Subject = Subject.PULL,
    ) -> None:
        await self._api.write(
            "PUT",
            f"/projects/{repository.external_id}/{_PATHS[on]}/{number}",
            {"add_labels": ",".join(labels)},
            about=f"Labels of {number}",
        )
