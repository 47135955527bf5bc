from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from urllib.parse import quote

from sandbox_server.domain.errors import (
    ForgePermissionMissing,
    ForgeResourceNotFound,
    NotSupportedByForge,
)
from sandbox_server.domain.tasks.forges import (
    CheckFacts,
    CredentialFacts,
    Delivery,
    MissingPermission,
    RepositoryFacts,
    Validated,
)
from sandbox_server.forges.connection.answers import validated
from sandbox_server.forges.connection.client import ForgeAddress, ForgeClient
from sandbox_server.forges.connection.token_api import TokenApi
from sandbox_server.forges.gitlab.deliveries import read_delivery
from sandbox_server.forges.gitlab.merge_requests import GitlabMergeRequests
from sandbox_server.forges.gitlab.models import (
    DEVELOPER,
    Member,
    ProjectDocument,
    StatusDocument,
    TokenDocument,
    User,
)
from sandbox_server.forges.gitlab.notes import GitlabNotes

_GIT_USER = "oauth2"
_GONE = 404
_RERUN_BEFORE = "not retryable"
_NEEDED_SCOPES = {
    "api": "open merge requests, comment and follow pipelines",
}


class GitlabAdapter(GitlabMergeRequests, GitlabNotes):
    """GitLab, reached with a project, group or personal access token of the scope `api`."""

    def __init__(
        self, client: ForgeClient, address: ForgeAddress, *, git_url: str, token: str
    ) -> None:
        api = TokenApi(client, address, {"PRIVATE-TOKEN": token}, page={"per_page": 50})
        super().__init__(api, git_url, username=_GIT_USER, token=token)

    async def inspect(self, full_name: str | None = None) -> CredentialFacts:
        user = (await self._api.get("/user", about="The token")).read(User)
        token = await self._inspect_token()
        missing = [
            MissingPermission(name=name, access="write", needed_for=purpose)
            for name, purpose in _NEEDED_SCOPES.items()
            if token is not None and name not in token.scopes
        ]
        if (
            full_name is not None
            and "push" not in (await self.find_repository(full_name)).permissions
        ):
            missing.append(
                MissingPermission(name="role Developer", access="write", needed_for="push branches")
            )
        return CredentialFacts(
            login=user.username,
            user_id=str(user.id),
            missing=missing,
            expires_at=_expiry(token),
        )

    async def find_repository(self, full_name: str) -> RepositoryFacts:
        answer = await self._api.get(
            f"/projects/{quote(full_name, safe='')}",
            about=f"Repository {full_name}",
            params={"statistics": "true"},
        )
        return answer.read(ProjectDocument).facts()

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]:
        """List jobs of pipelines and statuses of other systems, the newest of each name."""
        answer = await self._api.get(
            f"/projects/{repository.external_id}/repository/commits/{sha}/statuses",
            about=f"Checks of {sha[:12]}",
            params={"per_page": 100},
            validator=validator,
        )
        return validated(
            answer,
            validator,
            lambda given: tuple(status.facts() for status in given.read(list[StatusDocument])),
        )

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        if check.origin != "job":
            return check.summary.encode()[-max_bytes:]
        about = f"Log of {check.name}"
        answer = await self._api.read_end(
            f"/projects/{repository.external_id}/jobs/{check.external_id}/trace",
            about=about,
            max_bytes=max_bytes,
        )
        return b"" if answer.status == _GONE else answer.require_success(about=about).body

    async def rerun_checks(self, repository: RepositoryFacts, checks: Sequence[CheckFacts]) -> None:
        jobs = [each for each in checks if each.origin == "job"]
        if not jobs:
            raise NotSupportedByForge(
                self._api.address.name, "Only jobs of pipelines can be rerun."
            )
        for job in jobs:
            path = f"/projects/{repository.external_id}/jobs/{job.external_id}/retry"
            try:
                await self._api.write("POST", path, {}, about=f"Rerun of {job.name}")
            except ForgePermissionMissing as error:
                if _RERUN_BEFORE not in error.reason:
                    raise

    async def may_write(self, repository: RepositoryFacts, login: str) -> bool:
        """Look the user up among all members: direct, of groups, and by invitation."""
        members = await self._api.list_all(
            f"/projects/{repository.external_id}/members/all",
            Member,
            about=f"Permission of {login}",
            params={"query": login},
        )
        held = [each.access_level for each in members if each.username == login]
        return max(held, default=0) >= DEVELOPER

    def read_delivery(self, headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
        return read_delivery(headers, body, secret)

    async def _inspect_token(self) -> TokenDocument | None:
        try:
            answer = await self._api.get("/personal_access_tokens/self", about="The token")
        except ForgeResourceNotFound:  # an OAuth token, or an old version
            return None
        return answer.read(TokenDocument)


def _expiry(token: TokenDocument | None) -> datetime | None:
    if token is None or token.expires_at is None:
        return None
    return datetime.combine(token.expires_at, time(), UTC)
