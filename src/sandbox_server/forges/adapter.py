from collections.abc import Collection, Mapping
from typing import Protocol

from sandbox_server.domain.tasks.forges import (
    CheckFacts,
    Comment,
    Delivery,
    GitAccess,
    GitCredential,
    Issue,
    PullDraft,
    PullFacts,
    RepositoryFacts,
    Validated,
)


class ForgeAdapter(Protocol):
    """One forge, reached with one credential.

    Each method is one attempt: it raises a `ForgeError` with what can be done, and the job queue repeats it. Nothing here
    merges a pull request.
    """

    async def find_repository(self, full_name: str) -> RepositoryFacts: ...

    async def git_credential(self, repository: RepositoryFacts, access: GitAccess) -> GitCredential:
        """Return a credential for git, minted for this repository if the forge can."""
        ...

    async def get_issue(self, repository: RepositoryFacts, number: int) -> Issue:
        """Get an issue with its comments, oldest first."""
        ...

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        """Find the newest pull request of a branch, open or not."""
        ...

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        """Open a pull request; raises `PullExists` if the branch has one."""
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

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]: ...

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        """Read the end of the log of a failed check; empty where the forge has none."""
        ...

    async def find_comment(
        self, repository: RepositoryFacts, number: int, marker: str
    ) -> Comment | None:
        """Find our comment with this marker among the last of an issue or pull request."""
        ...

    async def comment(self, repository: RepositoryFacts, number: int, body: str) -> Comment: ...

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment: ...

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment: ...

    async def add_labels(
        self, repository: RepositoryFacts, number: int, labels: Collection[str]
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
