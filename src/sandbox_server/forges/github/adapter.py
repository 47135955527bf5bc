from collections.abc import Mapping, Sequence
from datetime import datetime

from sandbox_server.domain.tasks.forges import (
    CredentialFacts,
    Delivery,
    GitAccess,
    GitCredential,
    RepositoryFacts,
)
from sandbox_server.forges.connection.client import Call
from sandbox_server.forges.github.app_tokens import AppTokens, StaticToken
from sandbox_server.forges.github.checks import GithubChecks
from sandbox_server.forges.github.deliveries import read_delivery
from sandbox_server.forges.github.inspection import inspect_app, inspect_token
from sandbox_server.forges.github.issues import GithubIssues
from sandbox_server.forges.github.models import RepositoryDocument
from sandbox_server.forges.github.pulls import GithubPulls
from sandbox_server.forges.github.redelivery import redeliver_failed
from sandbox_server.forges.github.rest import GithubApi

_GIT_USER = "x-access-token"


class GithubAdapter(GithubPulls, GithubIssues, GithubChecks):
    """GitHub, reached with a token or as an App."""

    def __init__(
        self, api: GithubApi, *, git_url: str, credentials: StaticToken | AppTokens
    ) -> None:
        super().__init__(api)
        self._git_url = git_url.rstrip("/")
        self._credentials = credentials

    async def inspect(self, full_name: str | None = None) -> CredentialFacts:
        repository = None if full_name is None else await self.find_repository(full_name)
        if isinstance(self._credentials, AppTokens):
            return await inspect_app(self._api, self._credentials, repository)
        return await inspect_token(self._api, self._credentials, repository)

    async def find_repository(self, full_name: str) -> RepositoryFacts:
        installation = await self._credentials.find_installation(full_name)
        authorized = await self._credentials.authorize_name(full_name)
        call = Call(method="GET", path=f"/repos/{full_name}", about=f"Repository {full_name}")
        document = (await self._api.send(authorized, call)).read(RepositoryDocument)
        return document.facts(
            installation_id=None if installation is None else str(installation.id)
        )

    async def git_credential(self, repository: RepositoryFacts, access: GitAccess) -> GitCredential:
        token = await self._credentials.git_token(repository, access)
        return GitCredential(
            url=f"{self._git_url}/{repository.full_name}.git",
            username=_GIT_USER,
            password=token.value,
            expires_at=token.expires_at,
        )

    async def refuse_credential(self, repository: RepositoryFacts, access: GitAccess) -> None:
        await self._credentials.forget_git_token(repository, access)

    async def redeliver_failed(self, *, since: datetime) -> Sequence[str]:
        """Have GitHub repeat webhooks that did not arrive; only those of Apps are listed."""
        if not isinstance(self._credentials, AppTokens):
            return []
        return await redeliver_failed(self._credentials, since=since)

    def read_delivery(self, headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
        return read_delivery(headers, body, secret)
