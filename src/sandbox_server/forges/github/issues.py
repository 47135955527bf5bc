from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sandbox_server.domain.tasks.forges import (
    Comment,
    Issue,
    Labelling,
    RepositoryFacts,
    Subject,
    SubjectComment,
    Validated,
)
from sandbox_server.forges.connection.answers import Answer, second_of
from sandbox_server.forges.github.models import (
    CommentDocument,
    IssueDocument,
    IssueEventDocument,
    SubjectCommentDocument,
)
from sandbox_server.forges.github.permissions import CONTENTS
from sandbox_server.forges.github.rest import GithubApi

_ON_COMMIT = "commit/"


class GithubIssues:
    """Issues, and the comments and labels of issues and pull requests, which share their numbers."""

    def __init__(self, api: GithubApi) -> None:
        self._api = api

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        answer = await self._api.get(repository, f"/issues/{number}", about=f"Issue {number}")
        issue = answer.read(IssueDocument)
        return issue.issue(await self.list_comments(repository, number))

    async def list_labellings(
        self,
        repository: RepositoryFacts,
        label: str,
        *,
        since: datetime,
        validator: str | None = None,
    ) -> Validated[tuple[Labelling, ...]]:
        pages = await self._api.list_pages(
            repository,
            "/issues",
            IssueDocument,
            about=f"Issues labelled {label}",
            params={"labels": label, "since": second_of(since)},
            validator=validator,
        )
        issues = [each for each in pages.items or () if each.pull_request is None]
        found = [await self._find_labelling(repository, each.number, label) for each in issues]
        return pages.validated(found, since)

    async def _find_labelling(
        self, repository: RepositoryFacts, number: int, label: str
    ) -> Labelling | None:
        events = await self._api.list_all(
            repository,
            f"/issues/{number}/events",
            IssueEventDocument,
            about=f"Events of issue {number}",
        )
        added = [each for each in events if each.event == "labeled" and each.is_about(label)]
        return added[-1].labelling(number, label) if added else None

    async def list_new_comments(
        self, repository: RepositoryFacts, *, since: datetime, validator: str | None = None
    ) -> Validated[tuple[SubjectComment, ...]]:
        pages = await self._api.list_pages(
            repository,
            "/issues/comments",
            SubjectCommentDocument,
            about="New comments",
            # Oldest first: of a list that is too long, the next look reads what is left.
            params={"since": second_of(since), "sort": "created", "direction": "asc"},
            validator=validator,
        )
        found = [each.subject_comment() for each in pages.items or ()]
        return pages.validated(found, since, is_sorted=True)

    async def list_comments(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        on: Subject = Subject.PULL,  # noqa: ARG002 - of the protocol
        since: datetime | None = None,
    ) -> Sequence[Comment]:
        params: Mapping[str, str] = {} if since is None else {"since": since.isoformat()}
        found = await self._api.list_all(
            repository,
            f"/issues/{number}/comments",
            CommentDocument,
            about=f"Comments of {number}",
            params=params,
        )
        return [each.comment() for each in found]

    async def find_comment(
        self,
        repository: RepositoryFacts,
        number: int,
        marker: str,
        *,
        on: Subject = Subject.PULL,
    ) -> Comment | None:
        comments = await self.list_comments(repository, number, on=on)
        return next((each for each in reversed(comments) if marker in each.body), None)

    async def comment(
        self,
        repository: RepositoryFacts,
        number: int,
        body: str,
        *,
        on: Subject = Subject.PULL,  # noqa: ARG002
    ) -> Comment:
        answer = await self._api.write(
            repository,
            "POST",
            f"/issues/{number}/comments",
            {"body": body},
            about=f"Comment on {number}",
        )
        return answer.read(CommentDocument).comment()

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment:
        of_commit = comment_id.removeprefix(_ON_COMMIT)
        if of_commit != comment_id:
            return await self._write_on_commit(repository, "PATCH", f"/comments/{of_commit}", body)
        answer = await self._api.write(
            repository,
            "PATCH",
            f"/issues/comments/{comment_id}",
            {"body": body},
            about=f"Comment {comment_id}",
        )
        return answer.read(CommentDocument).comment()

    async def comment_on_commit(self, repository: RepositoryFacts, sha: str, body: str) -> Comment:
        return await self._write_on_commit(repository, "POST", f"/commits/{sha}/comments", body)

    async def find_commit_comment(
        self, repository: RepositoryFacts, sha: str, marker: str
    ) -> Comment | None:
        answer = await self._on_commit(repository, "GET", f"/commits/{sha}/comments?per_page=100")
        found = answer.read(list[CommentDocument])
        own = [_of_commit(each) for each in found if marker in (each.body or "")]
        return own[-1] if own else None

    async def _write_on_commit(
        self, repository: RepositoryFacts, method: str, path: str, body: str
    ) -> Comment:
        answer = await self._on_commit(repository, method, path, {"body": body})
        return _of_commit(answer.read(CommentDocument))

    async def _on_commit(
        self,
        repository: RepositoryFacts,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Send a request about comments on commits, which belong to the contents of a repository."""
        call = self._api.call(repository, method, path, about="Comments on commits", json=document)
        authorized = await self._api.credentials.authorize_for(repository, CONTENTS)
        return await self._api.send(authorized, call)

    async def add_labels(
        self,
        repository: RepositoryFacts,
        number: int,
        labels: Collection[str],
        *,
        on: Subject = Subject.PULL,  # noqa: ARG002
    ) -> None:
        await self._api.write(
            repository,
            "POST",
            f"/issues/{number}/labels",
            {"labels": list(labels)},
            about=f"Labels of {number}",
        )


def _of_commit(document: CommentDocument) -> Comment:
    """Name a comment on a commit apart from those on issues, which have ids of their own."""
    comment = document.comment()
    return replace(comment, id=f"{_ON_COMMIT}{comment.id}")
