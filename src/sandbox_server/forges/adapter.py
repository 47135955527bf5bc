from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sandbox_server.domain.tasks.forges import (
    CheckFacts,
    Comment,
    CredentialFacts,
    Delivery,
    GitAccess,
    GitCredential,
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


class ForgeAdapter(Protocol):
    """One forge, reached with one credential.

    Each method is one attempt: it raises a `ForgeError` whose `is_repeatable` and `retry_after` say whether and when the job
    queue may repeat it. A credential that cannot do it raises `NotSupportedByForge`. Nothing here merges a pull request.
    """

    async def inspect(self, full_name: str | None = None) -> CredentialFacts:
        """Find out who the credential is and what it lacks, if given for this repository."""
        ...

    async def find_repository(self, full_name: str) -> RepositoryFacts: ...

    async def git_credential(self, repository: RepositoryFacts, access: GitAccess) -> GitCredential:
        """Return a credential for git, minted for this repository if the forge can."""
        ...

    async def refuse_credential(self, repository: RepositoryFacts, access: GitAccess) -> None:
        """Forget a minted credential that git was refused with, so that the next one is minted anew."""
        ...

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        """Get an issue with its comments, oldest first."""
        ...

    async def list_labellings(
        self,
        repository: RepositoryFacts,
        label: str,
        *,
        since: datetime,
        validator: str | None = None,
    ) -> Validated[tuple[Labelling, ...]]:
        """List the last addition of a label to each open issue that has it and got it since then."""
        ...

    async def list_new_comments(
        self, repository: RepositoryFacts, *, since: datetime, validator: str | None = None
    ) -> Validated[tuple[SubjectComment, ...]]:
        """List the comments on issues and pull requests that were written since then."""
        ...

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        """Find the newest pull request of a branch, open or not."""
        ...

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        """Open a pull request, without its labels and reviewers; raises `PullExists` if the branch has one."""
        ...

    def pull_by_push(self, draft: PullDraft) -> PullByPush | None:
        """Describe the push that opens a pull request; None where pushes cannot."""
        ...

    async def update_pull(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        draft: bool | None = None,
        closed: bool = False,
    ) -> PullFacts: ...

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]: ...

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        """Get a submitted review with its comments."""
        ...

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        """List the submitted reviews, oldest first, without their comments."""
        ...

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]: ...

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        """Read the end of the log of a failed check; empty where the forge has none."""
        ...

    async def rerun_checks(self, repository: RepositoryFacts, checks: Sequence[CheckFacts]) -> None:
        """Rerun the jobs of failed checks, unless that was done before."""
        ...

    async def list_comments(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        on: Subject = Subject.PULL,
        since: datetime | None = None,
    ) -> Sequence[Comment]:
        """List the comments, oldest first; `since` leaves out those that were not changed since then."""
        ...

    async def find_comment(
        self,
        repository: RepositoryFacts,
        number: int,
        marker: str,
        *,
        on: Subject = Subject.PULL,
    ) -> Comment | None:
        """Find the newest comment that contains the marker."""
        ...

    async def comment(
        self, repository: RepositoryFacts, number: int, body: str, *, on: Subject = Subject.PULL
    ) -> Comment: ...

    async def comment_on_commit(
        self, repository: RepositoryFacts, sha: str, body: str
    ) -> Comment: ...

    async def find_commit_comment(
        self, repository: RepositoryFacts, sha: str, marker: str
    ) -> Comment | None:
        """Find the newest comment on a commit that contains the marker."""
        ...

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment: ...

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment: ...

    async def add_labels(
        self,
        repository: RepositoryFacts,
        number: int,
        labels: Collection[str],
        *,
        on: Subject = Subject.PULL,
    ) -> None: ...

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None: ...

    async def may_write(self, repository: RepositoryFacts, login: str) -> bool:
        """Return whether a user has write permission."""
        ...

    def read_delivery(self, headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
        """Verify the signature over the raw body and read a webhook delivery; raises `SignatureRefused`."""
        ...
