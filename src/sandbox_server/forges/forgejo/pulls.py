from collections.abc import Collection, Sequence

from sandbox_server.domain.tasks.forges import (
    Comment,
    PullFacts,
    RepositoryFacts,
    Review,
    Subject,
)
from sandbox_server.forges.connection.token_forge import PullDialect, TokenForge
from sandbox_server.forges.forgejo.models import ReviewCommentDocument, ReviewDocument
from sandbox_server.forges.github.models import CommentDocument, PullDocument

PAGE = {"limit": 50}
"""For lists that have pages; others refuse nothing, and describe no such parameter."""


class ForgejoPulls(TokenForge):
    """Pull requests and their reviews."""

    _dialect = PullDialect(
        model=PullDocument,
        noun="Pull request",
        head="head",
        base="base",
        body="body",
        draft="WIP: ",
        update="PATCH",
        closed={"state": "closed"},
    )

    def _pulls(self, repository: RepositoryFacts, number: int | None = None) -> str:
        one = "" if number is None else f"/{number}"
        return f"/repos/{repository.full_name}/pulls{one}"

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        """Search the pull requests, since lists cannot be filtered by head."""
        found = await self._api.list_all(
            self._pulls(repository),
            PullDocument,
            about=f"Pull requests of {head_ref}",
            params={"state": "all", "sort": "recentupdate", **PAGE},
        )
        facts = (each.facts() for each in found)
        own = (
            each
            for each in facts
            if each.head_ref == head_ref and each.head_repository_id == repository.external_id
        )
        return max(own, key=lambda pull: pull.number, default=None)

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        path, about = (
            f"{self._pulls(repository, number)}/reviews/{review_id}",
            f"Review {review_id}",
        )
        review = (await self._api.get(path, about=about)).read(ReviewDocument)
        comments = await self._api.list_all(f"{path}/comments", ReviewCommentDocument, about=about)
        return review.review([each.comment() for each in comments])

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        found = await self._api.list_all(
            f"{self._pulls(repository, number)}/reviews",
            ReviewDocument,
            about=f"Reviews of {number}",
            params=PAGE,
        )
        return [each.review() for each in found if each.is_submitted]

    async def comment(
        self,
        repository: RepositoryFacts,
        number: int,
        body: str,
        *,
        on: Subject = Subject.PULL,  # noqa: ARG002 - of the protocol
    ) -> Comment:
        answer = await self._api.write(
            "POST",
            f"/repos/{repository.full_name}/issues/{number}/comments",
            {"body": body},
            about=f"Comment on {number}",
        )
        return answer.read(CommentDocument).comment()

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment:
        """Answer in the pull request: the API cannot answer in a thread."""
        del thread_id
        return await self.comment(repository, number, body)

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None:
        """Request reviews of users, and of teams as `owner/team`."""
        await self._api.write(
            "POST",
            f"{self._pulls(repository, number)}/requested_reviewers",
            {
                "reviewers": [name for name in reviewers if "/" not in name],
                "team_reviewers": [name.rpartition("/")[2] for name in reviewers if "/" in name],
            },
            about=f"Reviewers of pull request {number}",
        )
