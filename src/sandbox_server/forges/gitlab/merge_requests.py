from collections.abc import Collection, Sequence

from sandbox_server.domain.errors import ForgeRefused
from sandbox_server.domain.tasks.forges import (
    Comment,
    PullFacts,
    RepositoryFacts,
    Review,
    ReviewComment,
)
from sandbox_server.forges.connection.token_forge import PullDialect, TokenForge
from sandbox_server.forges.gitlab.models import (
    DiscussionDocument,
    MergeRequestDocument,
    NoteDocument,
    User,
)


class GitlabMergeRequests(TokenForge):
    """Merge requests, which the rest of the server calls pull requests."""

    _dialect = PullDialect(
        model=MergeRequestDocument,
        noun="Merge request",
        head="source_branch",
        base="target_branch",
        body="description",
        draft="Draft: ",
        update="PUT",
        closed={"state_event": "close"},
    )

    def _pulls(self, repository: RepositoryFacts, number: int | None = None) -> str:
        one = "" if number is None else f"/{number}"
        return f"/projects/{repository.external_id}/merge_requests{one}"

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        answer = await self._api.get(
            self._pulls(repository),
            about=f"Merge requests of {head_ref}",
            params={"source_branch": head_ref, "state": "all", "per_page": 20},
        )
        found = answer.read(list[MergeRequestDocument])
        own = [each for each in found if str(each.source_project_id) == repository.external_id]
        return own[0].facts() if own else None

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        """Get one discussion: GitLab has no reviews that are submitted as a whole."""
        answer = await self._api.get(
            f"{self._pulls(repository, number)}/discussions/{review_id}",
            about=f"Discussion {review_id}",
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
            f"{self._pulls(repository, number)}/discussions/{thread_id}/notes",
            {"body": body},
            about=f"Reply in merge request {number}",
        )
        return answer.read(NoteDocument).comment(of=f"merge_requests/{number}")

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None:
        ids = [await self._user_id(name) for name in reviewers]
        await self._change_pull(repository, number, {"reviewer_ids": ids})

    async def _user_id(self, name: str) -> int:
        about = f"The user {name}"
        found = (await self._api.get("/users", about=about, params={"username": name})).read(
            list[User]
        )
        if not found:
            raise ForgeRefused(self._api.address.name, f"{about} does not exist.")
        return found[0].id


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
