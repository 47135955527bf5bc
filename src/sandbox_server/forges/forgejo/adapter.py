"""Forgejo and Gitea. Their API is made after GitHub's, so most documents are the same."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

from sandbox_server.domain.errors import (
    ForgePermissionMissing,
    ForgeResourceNotFound,
    NotSupportedByForge,
)
from sandbox_server.domain.tasks.forges import (
    CheckFacts,
    Comment,
    CredentialFacts,
    Delivery,
    Issue,
    Labelling,
    MissingPermission,
    RepositoryFacts,
    Subject,
    SubjectComment,
    Validated,
)
from sandbox_server.forges.connection.answers import second_of, validated
from sandbox_server.forges.connection.client import ForgeAddress, ForgeClient
from sandbox_server.forges.connection.token_api import TokenApi
from sandbox_server.forges.forgejo.deliveries import read_delivery
from sandbox_server.forges.forgejo.models import CombinedStatus
from sandbox_server.forges.forgejo.pulls import PAGE, ForgejoPulls
from sandbox_server.forges.github.models import (
    CommentDocument,
    IssueDocument,
    IssueEventDocument,
    Permission,
    RepositoryDocument,
    SubjectCommentDocument,
    User,
)

_GIT_USER = "x-access-token"  # any name is accepted
_LABEL_ADDED = "1"
_NO_COMMIT_COMMENTS = "Its API has no comments on commits."
_WRITERS = frozenset({"write", "admin", "owner"})
_LACKING = (ForgePermissionMissing, ForgeResourceNotFound)
_UNREADABLE = {
    "/pulls?limit=1": ("write:repository", "open and update pull requests"),
    "/issues?limit=1": ("write:issue", "read issues, comment and label"),
}


class ForgejoAdapter(ForgejoPulls):
    """Forgejo or Gitea, reached with an access token."""

    def __init__(
        self, client: ForgeClient, address: ForgeAddress, *, git_url: str, token: str
    ) -> None:
        api = TokenApi(client, address, {"Authorization": f"token {token}"})
        super().__init__(api, git_url, username=_GIT_USER, token=token)

    async def inspect(self, full_name: str | None = None) -> CredentialFacts:
        """Find out whose token it is. Scopes are not told, so only reading is tried."""
        user = (await self._api.get("/user", about="The token")).read(User)
        missing = [] if full_name is None else await self._find_missing(full_name)
        return CredentialFacts(login=user.login, user_id=str(user.id), missing=missing)

    async def find_repository(self, full_name: str) -> RepositoryFacts:
        answer = await self._api.get(f"/repos/{full_name}", about=f"Repository {full_name}")
        return answer.read(RepositoryDocument).facts()

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        answer = await self._api.get(
            f"/repos/{repository.full_name}/issues/{number}", about=f"Issue {number}"
        )
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
            f"/repos/{repository.full_name}/issues",
            IssueDocument,
            about=f"Issues labelled {label}",
            params={
                "labels": label,
                "type": "issues",
                "state": "open",
                "since": second_of(since),
                **PAGE,
            },
            validator=validator,
        )
        numbers = [each.number for each in pages.items or ()]
        found = [await self._find_labelling(repository, number, label) for number in numbers]
        return pages.validated(found, since)

    async def _find_labelling(
        self, repository: RepositoryFacts, number: int, label: str
    ) -> Labelling | None:
        events = await self._api.list_all(
            f"/repos/{repository.full_name}/issues/{number}/timeline",
            IssueEventDocument,
            about=f"Events of issue {number}",
            params=PAGE,
        )
        own = [each for each in events if each.event == "label" and each.is_about(label)]
        added = [each for each in own if each.body == _LABEL_ADDED]
        return added[-1].labelling(number, label) if added else None

    async def list_new_comments(
        self, repository: RepositoryFacts, *, since: datetime, validator: str | None = None
    ) -> Validated[tuple[SubjectComment, ...]]:
        pages = await self._api.list_pages(
            f"/repos/{repository.full_name}/issues/comments",
            SubjectCommentDocument,
            about="New comments",
            params={"since": second_of(since), **PAGE},
            validator=validator,
        )
        found = [each.subject_comment() for each in pages.items or ()]
        return pages.validated(found, since, is_sorted=True)  # oldest first

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
            f"/repos/{repository.full_name}/issues/{number}/comments",
            CommentDocument,
            about=f"Comments of {number}",
            params=params,
        )
        return [each.comment() for each in found]

    async def comment_on_commit(self, repository: RepositoryFacts, sha: str, body: str) -> Comment:
        del repository, sha, body
        raise NotSupportedByForge(self._api.address.name, _NO_COMMIT_COMMENTS)

    async def find_commit_comment(
        self, repository: RepositoryFacts, sha: str, marker: str
    ) -> Comment | None:
        del repository, sha, marker
        raise NotSupportedByForge(self._api.address.name, _NO_COMMIT_COMMENTS)

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment:
        answer = await self._api.write(
            "PATCH",
            f"/repos/{repository.full_name}/issues/comments/{comment_id}",
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
            "POST",
            f"/repos/{repository.full_name}/issues/{number}/labels",
            {"labels": list(labels)},
            about=f"Labels of {number}",
        )

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]:
        """List commit statuses, which Actions report their jobs as too."""
        answer = await self._api.get(
            f"/repos/{repository.full_name}/commits/{sha}/status",
            about=f"Checks of {sha[:12]}",
            params=PAGE,
            validator=validator,
        )
        return validated(
            answer,
            validator,
            lambda given: tuple(status.facts() for status in given.read(CombinedStatus).statuses),
        )

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        """Return the description: the API has no logs."""
        del repository
        return check.summary.encode()[-max_bytes:]

    async def rerun_checks(self, repository: RepositoryFacts, checks: Sequence[CheckFacts]) -> None:
        del repository, checks
        raise NotSupportedByForge(self._api.address.name, "Its API cannot rerun jobs.")

    async def may_write(self, repository: RepositoryFacts, login: str) -> bool:
        path = f"/repos/{repository.full_name}/collaborators/{quote(login, safe='')}/permission"
        try:
            answer = await self._api.get(path, about=f"Permission of {login}")
        except ForgeResourceNotFound:
            return False
        return answer.read(Permission).permission in _WRITERS

    def read_delivery(self, headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
        return read_delivery(headers, body, secret)

    async def _find_missing(self, full_name: str) -> Sequence[MissingPermission]:
        repository = await self.find_repository(full_name)
        missing = []
        if "push" not in repository.permissions:
            missing.append(
                MissingPermission(name="write", access="write", needed_for="push branches")
            )
        for path, (scope, purpose) in _UNREADABLE.items():
            try:
                await self._api.get(f"/repos/{full_name}{path}", about="Permission")
            except _LACKING:
                missing.append(MissingPermission(name=scope, access="write", needed_for=purpose))
        return missing
