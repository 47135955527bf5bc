from collections.abc import Callable, Mapping

from sandbox_server.db.models import Forge
from sandbox_server.domain.errors import NotSupportedByForge
from sandbox_server.domain.tasks.forges import Delivery, ForgeAuth, ForgeKind
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.forges.connection.client import ForgeAddress, ForgeClient
from sandbox_server.forges.connection.token_store import TokenStore
from sandbox_server.forges.forgejo import deliveries as forgejo_deliveries
from sandbox_server.forges.forgejo.adapter import ForgejoAdapter
from sandbox_server.forges.github import deliveries as github_deliveries
from sandbox_server.forges.github.adapter import GithubAdapter
from sandbox_server.forges.github.app_tokens import AppTokens, StaticToken, read_private_key
from sandbox_server.forges.github.rest import GithubApi
from sandbox_server.forges.gitlab import deliveries as gitlab_deliveries
from sandbox_server.forges.gitlab.adapter import GitlabAdapter
from sandbox_server.forges.plain_git import PlainGitAdapter
from sandbox_server.forges.sealed import open_secret
from sandbox_server.vault import Vault

_DELIVERY_READERS: Mapping[ForgeKind, Callable[[Mapping[str, str], bytes, bytes], Delivery]] = {
    ForgeKind.GITHUB: github_deliveries.read_delivery,
    ForgeKind.GITLAB: gitlab_deliveries.read_delivery,
    ForgeKind.FORGEJO: forgejo_deliveries.read_delivery,
}


def read_delivery(row: Forge, headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
    """Verify and read a webhook delivery, which needs no adapter and so no credential."""
    reader = _DELIVERY_READERS.get(ForgeKind(row.kind))
    if reader is None:
        raise NotSupportedByForge(row.name, "A plain git server has no webhooks.")
    return reader(headers, body, secret)


class AdapterFactory:
    """Makes the adapter of a forge from its row."""

    def __init__(self, client: ForgeClient, store: TokenStore, vault: Vault) -> None:
        self._client = client
        self._store = store
        self._vault = vault

    def make(self, row: Forge) -> ForgeAdapter:
        address = ForgeAddress(forge_id=row.id, name=row.name, api_url=row.api_url or row.git_url)
        kind, secret = ForgeKind(row.kind), self._secret_of(row)
        if row.api_url is None or secret is None:
            return PlainGitAdapter(
                self._client, address, kind=kind, username=row.git_username, password=secret
            )
        match kind:
            case ForgeKind.GITHUB:
                return self._github(row, address, secret)
            case ForgeKind.GITLAB:
                return GitlabAdapter(self._client, address, git_url=row.git_url, token=secret)
        return ForgejoAdapter(self._client, address, git_url=row.git_url, token=secret)

    def _github(self, row: Forge, address: ForgeAddress, secret: str) -> GithubAdapter:
        credentials: StaticToken | AppTokens = StaticToken(secret)
        if row.auth == ForgeAuth.APP:
            assert row.app_id is not None
            credentials = AppTokens(
                self._client,
                address,
                self._store,
                app_id=row.app_id,
                private_key=read_private_key(secret.encode(), is_verified=True),
            )
        api = GithubApi(self._client, address, credentials)
        return GithubAdapter(api, git_url=row.git_url, credentials=credentials)

    def _secret_of(self, row: Forge) -> str | None:
        if row.secret_sealed is None:
            return None
        return open_secret(self._vault, row.id, row.secret_sealed)
