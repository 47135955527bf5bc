from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sandbox_server.domain.errors import ForgeRefused, PullExists
from sandbox_server.domain.tasks.forges import (
    Comment,
    PullByPush,
    PullDraft,
    PullFacts,
    RepositoryFacts,
    Review,
    Subject,
    Validated,
)
from sandbox_server.forges.connection.token_api import TokenApi
from sandbox_server.forges.forgejo.models import ReviewCommentDocument, ReviewDocument
from sandbox_server.forges.github.models import CommentDocument, PullDocument

_DRAFT = "WIP: "
_EXISTS = "already exists"


class ForgejoPulls:
    """Pull requests and their reviews."""

    def __init__(self, api: TokenApi) -> None:
        self._api = api

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        """Search the pull requests, since lists cannot be filtered by head."""
        found = await self._api.list_all(
            _of(repository),
            PullDocument,
            about=f"Pull requests of {head_ref}",
            params={"state": "all", "sort": "recentupdate"},
        )
        facts = (each.facts() for each in found)
        own = (
            each
            for each in facts
            if each.head_ref == head_ref and each.head_repository_id == repository.external_id
        )
        return max(own, key=lambda pull: pull.number, default=None)

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        document = {
            "head": draft.head_ref,
            "base": draft.base_ref,
            "title": _titled(draft.title, draft=draft.draft),
            "body": draft.body,
        }
        about = f"Pull request of {draft.head_ref}"
        try:
            answer = await self._api.write("POST", _of(repository), document, about=about)
        except ForgeRefused as error:
            if _EXISTS in error.reason:
                raise PullExists(error.forge, error.reason) from None
            raise
        return answer.read(PullDocument).facts()

    def pull_by_push(self, _draft: PullDraft) -> PullByPush | None:
        return None

    async def update_pull(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        draft: bool | None = None,
        closed: bool = False,
    ) -> PullFacts:
        current = (await self._get(repository, number)).facts()
        changes: dict[str, Any] = {} if body is None else {"body": body}
        if title is not None or draft is not None:
            plain = current.title.removeprefix(_DRAFT) if title is None else title
            changes["title"] = _titled(plain, draft=current.draft if draft is None else draft)
        if closed:
            changes["state"] = "closed"
        return await self._update(repository, number, changes) if changes else current

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]:
        answer = await self._api.get(
            _of(repository, number), about=f"Pull request {number}", validator=validator
        )
        if answer.is_unchanged:
            return Validated(value=None, validator=validator)
        return Validated(value=answer.read(PullDocument).facts(), validator=answer.validator)

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        path, about = f"{_of(repository, number)}/reviews/{review_id}", f"Review {review_id}"
        review = (await self._api.get(path, about=about)).read(ReviewDocument)
        comments = await self._api.list_all(f"{path}/comments", ReviewCommentDocument, about=about)
        return review.review([each.comment() for each in comments])

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        found = await self._api.list_all(
            f"{_of(repository, number)}/reviews", ReviewDocument, about=f"Reviews of {number}"
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
            f"{_of(repository, number)}/requested_reviewers",
            {
                "reviewers": [name for name in reviewers if "/" not in name],
                "team_reviewers": [name.rpartition("/")[2] for name in reviewers if "/" in name],
            },
            about=f"Reviewers of pull request {number}",
        )

    async def _get(self, repository: RepositoryFacts, number: int) -> PullDocument:
        answer = await self._api.get(_of(repository, number), about=f"Pull request {number}")
        return answer.read(PullDocument)

    async def _update(
        self, repository: RepositoryFacts, number: int, changes: Mapping[str, Any]
    ) -> PullFacts:
        answer = await self._api.write(
            "PATCH", _of(repository, number), changes, about=f"Pull request {number}"
        )
        return answer.read(PullDocument).facts()


def _of(repository: RepositoryFacts, number: int | None = None) -> str:
    one = "" if number is None else f"/{number}"
    return f"/repos/{repository.full_name}/pulls{one}"


def _titled(title: str, *, draft: bool) -> str:
    return f"{_DRAFT}{title}" if draft else title
