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
    ReviewComment,
    Validated,
)
from sandbox_server.forges.connection.token_api import TokenApi
from sandbox_server.forges.gitlab.models import (
    DiscussionDocument,
    MergeRequestDocument,
    NoteDocument,
    User,
)

_DRAFT = "Draft: "
_EXISTS = "already exists"


class GitlabMergeRequests:
    """Merge requests, which the rest of the server calls pull requests."""

    def __init__(self, api: TokenApi) -> None:
        self._api = api

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        answer = await self._api.get(
            _of(repository),
            about=f"Merge requests of {head_ref}",
            params={"source_branch": head_ref, "state": "all", "per_page": 20},
        )
        found = answer.read(list[MergeRequestDocument])
        own = [each for each in found if str(each.source_project_id) == repository.external_id]
        return own[0].facts() if own else None

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        document = {
            "source_branch": draft.head_ref,
            "target_branch": draft.base_ref,
            "title": _titled(draft.title, draft=draft.draft),
            "description": draft.body,
        }
        about = f"Merge request of {draft.head_ref}"
        try:
            answer = await self._api.write("POST", _of(repository), document, about=about)
        except ForgeRefused as error:
            if _EXISTS in error.reason:
                raise PullExists(error.forge, error.reason) from None
            raise
        return answer.read(MergeRequestDocument).facts()

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
        wanted = current.draft if draft is None else draft
        changes: dict[str, Any] = {} if body is None else {"description": body}
        if title is not None or draft is not None:
            plain = _untitled(current.title) if title is None else title
            changes["title"] = _titled(plain, draft=wanted)
        if closed:
            changes["state_event"] = "close"
        return await self._update(repository, number, changes) if changes else current

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]:
        answer = await self._api.get(
            _of(repository, number), about=f"Merge request {number}", validator=validator
        )
        if answer.is_unchanged:
            return Validated(value=None, validator=validator)
        facts = answer.read(MergeRequestDocument).facts()
        return Validated(value=facts, validator=answer.validator)

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        """Get one discussion: GitLab has no reviews that are submitted as a whole."""
        answer = await self._api.get(
            f"{_of(repository, number)}/discussions/{review_id}", about=f"Discussion {review_id}"
        )
        notes = answer.read(DiscussionDocument).notes
        first = notes[0]
        user = first.author or User()
        return Review(
            id=review_id,
            author=user.username,
            author_is_bot=user.is_bot,
            state="commented",
            body="",
            at=first.created_at,
            comments=[_review_comment(note, review_id, number) for note in notes],
        )

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        del repository, number
        return []

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment:
        answer = await self._api.write(
            "POST",
            f"{_of(repository, number)}/discussions/{thread_id}/notes",
            {"body": body},
            about=f"Reply in merge request {number}",
        )
        return answer.read(NoteDocument).comment(of=f"merge_requests/{number}")

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None:
        ids = [await self._user_id(name) for name in reviewers]
        await self._update(repository, number, {"reviewer_ids": ids})

    async def _user_id(self, name: str) -> int:
        about = f"The user {name}"
        found = (await self._api.get("/users", about=about, params={"username": name})).read(
            list[User]
        )
        if not found:
            raise ForgeRefused(self._api.address.name, f"{about} does not exist.")
        return found[0].id

    async def _get(self, repository: RepositoryFacts, number: int) -> MergeRequestDocument:
        answer = await self._api.get(_of(repository, number), about=f"Merge request {number}")
        return answer.read(MergeRequestDocument)

    async def _update(
        self, repository: RepositoryFacts, number: int, changes: Mapping[str, Any]
    ) -> PullFacts:
        answer = await self._api.write(
            "PUT", _of(repository, number), changes, about=f"Merge request {number}"
        )
        return answer.read(MergeRequestDocument).facts()


def _of(repository: RepositoryFacts, number: int | None = None) -> str:
    one = "" if number is None else f"/{number}"
    return f"/projects/{repository.external_id}/merge_requests{one}"


def _titled(title: str, *, draft: bool) -> str:
    return f"{_DRAFT}{title}" if draft else title


def _untitled(title: str) -> str:
    return title.removeprefix(_DRAFT)


def _review_comment(note: NoteDocument, thread_id: str, number: int) -> ReviewComment:
    comment = note.comment(of=f"merge_requests/{number}")
    position = note.position
    return ReviewComment(
        id=comment.id,
        author=comment.author,
        author_is_bot=comment.author_is_bot,
        body=comment.body,
        at=comment.at,
        thread_id=thread_id,
        path=None if position is None else position.new_path,
        line=None if position is None else position.new_line or position.old_line,
    )
