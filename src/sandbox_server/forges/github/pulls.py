from collections.abc import Collection, Mapping, Sequence
from urllib.parse import quote

from sandbox_server.domain.errors import (
    ForgeRefused,
    ForgeResourceNotFound,
)
from sandbox_server.domain.tasks.forges import (
    Comment,
    PullByPush,
    PullDraft,
    PullFacts,
    RepositoryFacts,
    Review,
    Validated,
)
from sandbox_server.forges.connection.answers import ForgeModel, validated
from sandbox_server.forges.connection.client import Call
from sandbox_server.forges.connection.token_forge import telling_of_an_existing_pull
from sandbox_server.forges.github.models import (
    Permission,
    PullDocument,
    ReviewCommentDocument,
    ReviewDocument,
)
from sandbox_server.forges.github.permissions import READY
from sandbox_server.forges.github.rest import GithubApi

_WRITERS = frozenset({"admin", "maintain", "write", "push"})
_MUTATIONS = {True: "convertPullRequestToDraft", False: "markPullRequestReadyForReview"}


class _GraphqlAnswer(ForgeModel):
    errors: Sequence[Mapping[str, object]] = ()


class GithubPulls:
    """Pull requests and their reviews."""

    def __init__(self, api: GithubApi) -> None:
        self._api = api

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        owner = repository.full_name.partition("/")[0]
        answer = await self._api.get(
            repository,
            "/pulls",
            about=f"Pull requests of {head_ref}",
            params={"head": f"{owner}:{head_ref}", "state": "all", "per_page": 1},
        )
        found = answer.read(list[PullDocument])
        return found[0].facts() if found else None

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        document = {
            "title": draft.title,
            "body": draft.body,
            "head": draft.head_ref,
            "base": draft.base_ref,
            "draft": draft.draft,
        }
        about = f"Pull request of {draft.head_ref}"
        with telling_of_an_existing_pull():
            answer = await self._api.write(repository, "POST", "/pulls", document, about=about)
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
        changes = {"title": title, "body": body, "state": "closed" if closed else None}
        document = {name: value for name, value in changes.items() if value is not None}
        if document:
            await self._api.write(
                repository, "PATCH", f"/pulls/{number}", document, about=f"Pull request {number}"
            )
        pull = await self._get(repository, number)
        if draft is None or pull.draft == draft:
            return pull.facts()
        await self._set_draft(repository, pull, draft=draft)
        return (await self._get(repository, number)).facts()

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]:
        answer = await self._api.get(
            repository, f"/pulls/{number}", about=f"Pull request {number}", validator=validator
        )
        return validated(answer, validator, lambda given: given.read(PullDocument).facts())

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        path = f"/pulls/{number}/reviews/{review_id}"
        answer = await self._api.get(repository, path, about=f"Review {review_id}")
        comments = await self._api.list_all(
            repository, f"{path}/comments", ReviewCommentDocument, about=f"Review {review_id}"
        )
        return answer.read(ReviewDocument).review(tuple(each.comment() for each in comments))

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        found = await self._api.list_all(
            repository, f"/pulls/{number}/reviews", ReviewDocument, about=f"Reviews of {number}"
        )
        return [each.review() for each in found if each.submitted_at is not None]

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment:
        answer = await self._api.write(
            repository,
            "POST",
            f"/pulls/{number}/comments/{thread_id}/replies",
            {"body": body},
            about=f"Reply in pull request {number}",
        )
        return answer.read(ReviewCommentDocument).comment()

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None:
        """Request reviews of users, and of teams as `owner/team`."""
        users = [name for name in reviewers if "/" not in name]
        teams = [name.rpartition("/")[2] for name in reviewers if "/" in name]
        await self._api.write(
            repository,
            "POST",
            f"/pulls/{number}/requested_reviewers",
            {"reviewers": users, "team_reviewers": teams},
            about=f"Reviewers of pull request {number}",
        )

    async def may_write(self, repository: RepositoryFacts, login: str) -> bool:
        path = f"/collaborators/{quote(login, safe='')}/permission"
        try:
            answer = await self._api.get(repository, path, about=f"Permission of {login}")
        except ForgeResourceNotFound:
            return False
        return answer.read(Permission).permission in _WRITERS

    async def _get(self, repository: RepositoryFacts, number: int) -> PullDocument:
        answer = await self._api.get(repository, f"/pulls/{number}", about=f"Pull request {number}")
        return answer.read(PullDocument)

    async def _set_draft(
        self, repository: RepositoryFacts, pull: PullDocument, *, draft: bool
    ) -> None:
        """Change the draft state, which only GraphQL can."""
        name = _MUTATIONS[draft]
        query = (
            f"mutation($id: ID!) {{ {name}(input: {{pullRequestId: $id}}) {{ clientMutationId }} }}"
        )
        about = f"Draft state of pull request {pull.number}"
        call = Call(
            method="POST",
            path=graphql_url(self._api.address.api_url),
            about=about,
            resource="graphql",
            json={"query": query, "variables": {"id": pull.node_id}},
        )
        authorized = await self._api.credentials.authorize_for(repository, READY)
        answer = await self._api.send(authorized, call)
        if answer.read(_GraphqlAnswer).errors:
            raise ForgeRefused(answer.forge, f"{about}: {_said(answer.read(_GraphqlAnswer))}")


def graphql_url(api_url: str) -> str:
    """Find GraphQL beside the REST API: GitHub Enterprise Server has them at `/api/v3` and `/api/graphql`."""
    return f"{api_url.rstrip('/').removesuffix('/v3')}/graphql"


def _said(answer: _GraphqlAnswer) -> str:
    return "; ".join(str(error.get("message", "unknown error")) for error in answer.errors)
