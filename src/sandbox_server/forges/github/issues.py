from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sandbox_server.domain.tasks.forges import Comment, Issue, RepositoryFacts, Subject
from sandbox_server.forges.github.models import CommentDocument, IssueDocument, User
from sandbox_server.forges.github.rest import GithubApi


class GithubIssues:
    """Issues, and the comments and labels of issues and pull requests, which share their numbers."""

    def __init__(self, api: GithubApi) -> None:
        self._api = api

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        answer = await self._api.get(repository, f"/issues/{number}", about=f"Issue {number}")
        issue = answer.read(IssueDocument)
        return Issue(
            number=issue.number,
            title=issue.title,
            body=issue.body or "",
            author=(issue.user or User()).login,
            url=issue.html_url,
            is_open=issue.state == "open",
            labels=issue.label_names,
            comments=await self.list_comments(repository, number),
        )

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
        answer = await self._api.write(
            repository,
            "PATCH",
            f"/issues/comments/{comment_id}",
            {"body": body},
            about=f"Comment {comment_id}",
        )
        return answer.read(CommentDocument).comment()

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
