"""Forges without an API, or with a credential for git only: branches are pushed, and pull requests opened by push options at best."""

# ruff: noqa: ARG002 - arguments of the protocol

import base64
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Never

from sandbox_server.domain.errors import ForgeUnavailable, NotSupportedByForge
from sandbox_server.domain.tasks.forges import (
    CheckFacts,
    Comment,
    CredentialFacts,
    Delivery,
    ForgeKind,
    Issue,
    Labelling,
    PullByPush,
    PullDraft,
    PullFacts,
    RepositoryFacts,
    Review,
    Subject,
    SubjectComment,
    Validated,
)
from sandbox_server.forges.connection.client import Call, ForgeAddress, ForgeClient
from sandbox_server.forges.connection.token_forge import OneCredential

_LENGTH = 4  # of a pkt-line's length
_SYMREF = b"symref=HEAD:refs/heads/"
_HEAD_BYTES = 64 * 1024
_LONGEST_OPTION = 15_000  # characters; a pkt-line has at most 65,516 bytes


class PlainGitAdapter(OneCredential):
    """A git server over smart HTTP."""

    def __init__(
        self,
        client: ForgeClient,
        address: ForgeAddress,
        *,
        kind: ForgeKind,
        username: str | None,
        password: str | None,
    ) -> None:
        self._client = client
        self._address = address
        self._kind = kind
        super().__init__(address.api_url, username=username or "git", password=password)

    async def inspect(self, full_name: str | None = None) -> CredentialFacts:
        if full_name is not None:
            await self.find_repository(full_name)
        return CredentialFacts()

    async def find_repository(self, full_name: str) -> RepositoryFacts:
        """Find the default branch in the advertisement of refs; the name is the only identity there is."""
        call = Call(
            method="GET",
            path=f"/{full_name}.git/info/refs?service=git-upload-pack",
            about=f"Repository {full_name}",
            headers=self._headers(),
        )
        answer = (await self._client.send(self._address, call)).require_success(about=call.about)
        return RepositoryFacts(
            external_id=full_name,
            full_name=full_name,
            default_branch=self._read_default_branch(answer.body),
            private=self._password is not None,
            url=self._url_of(full_name),
        )

    def pull_by_push(self, draft: PullDraft) -> PullByPush | None:
        match self._kind:
            case ForgeKind.GITLAB:
                return merge_request_push(draft)
            case ForgeKind.FORGEJO:
                return agit_push(draft)
        return None

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        self._refuse("issues")

    async def list_labellings(
        self,
        repository: RepositoryFacts,
        label: str,
        *,
        since: datetime,
        validator: str | None = None,
    ) -> Validated[tuple[Labelling, ...]]:
        self._refuse("issues")

    async def list_new_comments(
        self, repository: RepositoryFacts, *, since: datetime, validator: str | None = None
    ) -> Validated[tuple[SubjectComment, ...]]:
        self._refuse("comments")

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        self._refuse("pull requests")

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        self._refuse("pull requests")

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
        self._refuse("pull requests")

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]:
        self._refuse("pull requests")

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        self._refuse("reviews")

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        self._refuse("reviews")

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]:
        self._refuse("checks")

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        self._refuse("checks")

    async def rerun_checks(self, repository: RepositoryFacts, checks: Sequence[CheckFacts]) -> None:
        self._refuse("checks")

    async def list_comments(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        on: Subject = Subject.PULL,
        since: datetime | None = None,
    ) -> Sequence[Comment]:
        self._refuse("comments")

    async def find_comment(
        self,
        repository: RepositoryFacts,
        number: int,
        marker: str,
        *,
        on: Subject = Subject.PULL,
    ) -> Comment | None:
        self._refuse("comments")

    async def comment(
        self, repository: RepositoryFacts, number: int, body: str, *, on: Subject = Subject.PULL
    ) -> Comment:
        self._refuse("comments")

    async def comment_on_commit(self, repository: RepositoryFacts, sha: str, body: str) -> Comment:
        self._refuse("comments")

    async def find_commit_comment(
        self, repository: RepositoryFacts, sha: str, marker: str
    ) -> Comment | None:
        self._refuse("comments")

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment:
        self._refuse("comments")

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment:
        self._refuse("reviews")

    async def add_labels(
        self,
        repository: RepositoryFacts,
        number: int,
        labels: Collection[str],
        *,
        on: Subject = Subject.PULL,
    ) -> None:
        self._refuse("labels")

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None:
        self._refuse("reviewers")

    async def may_write(self, repository: RepositoryFacts, login: str) -> bool:
        self._refuse("permissions of users")

    def read_delivery(self, headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
        self._refuse("webhooks")

    def _refuse(self, what: str) -> Never:
        raise NotSupportedByForge(
            self._address.name, f"There are no {what} without an API and a token for it."
        )

    def _headers(self) -> dict[str, str]:
        if self._password is None:
            return {}
        basic = base64.b64encode(f"{self._username}:{self._password}".encode()).decode()
        return {"Authorization": f"Basic {basic}"}

    def _read_default_branch(self, advertisement: bytes) -> str:
        head = advertisement[:_HEAD_BYTES]
        if not head[_LENGTH:].startswith(b"# service=git-upload-pack"):
            raise ForgeUnavailable(self._address.name, "The address is not a git server.")
        _, found, rest = head.partition(_SYMREF)
        return rest.split()[0].decode(errors="replace") if found else "main"


def merge_request_push(draft: PullDraft) -> PullByPush:
    """GitLab: options of an ordinary push of the branch; a repeated push changes nothing."""
    options = [
        "merge_request.create",
        f"merge_request.target={draft.base_ref}",
        f"merge_request.title={_line(draft.title)}",
        f"merge_request.description={_lines(draft.body)}",
        *(["merge_request.draft"] if draft.draft else []),
        *(f"merge_request.label={_line(label)}" for label in draft.labels),
    ]
    return PullByPush(
        ref=f"refs/heads/{draft.head_ref}",
        options=options,
        heads="refs/merge-requests/*/head",
        page="-/merge_requests/{number}",
    )


def agit_push(draft: PullDraft) -> PullByPush:
    """Forgejo and Gitea: a push to `refs/for/{base}`; the topic makes a later push update the same pull request."""
    title = f"WIP: {draft.title}" if draft.draft else draft.title
    return PullByPush(
        ref=f"refs/for/{draft.base_ref}",
        options=[
            f"topic={draft.head_ref}",
            f"title={_line(title)}",
            f"description={_lines(draft.body)}",
        ],
        heads="refs/pull/*/head",
        page="pulls/{number}",
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _lines(text: str) -> str:
    """Keep the lines of a text: options are single lines, and both forges render this tag."""
    return "<br>".join(text.splitlines())[:_LONGEST_OPTION]
