from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sandbox_server.db.locks import Locks
from sandbox_server.db.models import Forge, ForgeBudget
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    ForgeInUse,
    ForgeNotFound,
    InvalidRequest,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import CredentialFacts, Delivery, ForgeAuth, ForgeKind
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.forges.adapters import AdapterFactory
from sandbox_server.forges.connection.budgets import WRITE_INTERVAL, Budgets
from sandbox_server.forges.connection.client import ForgeClient
from sandbox_server.forges.connection.token_store import TokenStore
from sandbox_server.forges.github.app_tokens import read_private_key
from sandbox_server.forges.hosts import AllowedHosts
from sandbox_server.forges.repository import ForgeRepository
from sandbox_server.forges.sealed import seal_secret, seal_webhook_secret
from sandbox_server.forges.webhook_keys import WebhookKeys
from sandbox_server.jobs.kinds import WEBHOOK_REDELIVERY
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.vault import Vault

_DEFAULTS: Mapping[ForgeKind, tuple[str, str]] = {
    ForgeKind.GITHUB: ("https://api.github.com", "https://github.com"),
    ForgeKind.GITLAB: ("https://gitlab.com/api/v4", "https://gitlab.com"),
    ForgeKind.FORGEJO: ("https://codeberg.org/api/v1", "https://codeberg.org"),
}
_IDENTITY = ("kind", "auth", "api_url", "git_url", "app_id", "git_username")
"""Fields that a secret belongs to: it is never used with other values of these."""


@dataclass(frozen=True, kw_only=True)
class ForgeDefinition:
    """A forge as it was requested. None keeps a secret that is stored."""

    kind: ForgeKind
    auth: ForgeAuth
    api_url: str | None = None
    git_url: str | None = None
    git_only: bool = False
    git_username: str | None = None
    app_id: str | None = None
    secret: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class CheckedForge:
    forge: Forge
    facts: CredentialFacts
    budgets: Sequence[ForgeBudget]


class Forges:
    """The forges of tenants, and the adapters that reach them."""

    def __init__(
        self,
        sessions: Sessions,
        vault: Vault,
        hosts: AllowedHosts,
        *,
        write_interval: timedelta = WRITE_INTERVAL,
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._hosts = hosts
        self._locks = Locks(sessions)
        self.webhook_keys = WebhookKeys(sessions, vault)
        self._client = ForgeClient(Budgets(sessions, self._locks, write_interval=write_interval))
        self._adapters = AdapterFactory(self._client, TokenStore(sessions, vault), vault)

    async def put(
        self, caller: Caller, name: str, definition: ForgeDefinition
    ) -> tuple[Forge, bool]:
        """Create or replace a forge; returns it and whether it is new."""
        wanted = self._describe(definition)
        async with self._sessions.begin() as session:
            repository = ForgeRepository(session)
            await repository.lock_tenant(caller.tenant_id)
            row = await repository.find_named(caller.tenant_id, name)
            is_new = row is None
            if row is None:
                row = Forge(id=new_id(), tenant_id=caller.tenant_id, name=name)
            is_changed = any(getattr(row, key) != wanted[key] for key in _IDENTITY)
            if definition.secret is not None or is_changed:
                await repository.forget_credential(row.id)
            self._write(row, wanted, definition, is_changed=is_changed)
            repository.add(row)
            await session.flush()
            if definition.auth is ForgeAuth.APP:
                await JobRepository(session).due(WEBHOOK_REDELIVERY, row.id)
        return row, is_new

    async def get(self, caller: Caller, name: str) -> Forge:
        async with without_transaction(self._sessions) as session:
            return await ForgeRepository(session).get_named(caller.tenant_id, name)

    async def list_page(
        self, caller: Caller, *, limit: int, after: str | None = None
    ) -> Sequence[Forge]:
        async with without_transaction(self._sessions) as session:
            return await ForgeRepository(session).list_page(
                caller.tenant_id, limit=limit, after=after
            )

    async def delete(self, caller: Caller, name: str) -> None:
        """Remove a forge and its secrets; raises `ForgeInUse` while it has repositories."""
        async with self._sessions.begin() as session:
            repository = ForgeRepository(session)
            await repository.lock_tenant(caller.tenant_id)
            row = await repository.get_named(caller.tenant_id, name)
            if await repository.is_used(row.id):
                raise ForgeInUse(name)
            await repository.mark_removed(row)

    async def check(
        self, caller: Caller, name: str, *, full_name: str | None = None
    ) -> CheckedForge:
        """Ask the forge who the credential is and what it lacks."""
        row = await self.get(caller, name)
        facts = await self._adapter_of(row).inspect(full_name)
        async with self._sessions.begin() as session:
            current = await session.merge(row)
            if facts.login is not None:
                current.bot_login, current.bot_id = facts.login, facts.user_id
            budgets = await ForgeRepository(session).list_budgets(row.id)
        return CheckedForge(forge=current, facts=facts, budgets=budgets)

    async def find_row(self, forge_id: str) -> Forge | None:
        """Find a forge of any tenant."""
        async with without_transaction(self._sessions) as session:
            return await ForgeRepository(session).find(forge_id)

    async def adapter(self, forge_id: str) -> ForgeAdapter:
        """Make an adapter with the forge's current credential."""
        return self._adapter_of(await self._get_row(forge_id))

    async def read_delivery(
        self, forge_id: str, headers: Mapping[str, str], body: bytes
    ) -> Delivery:
        """Verify and read a webhook delivery; raises `SignatureRefused`, also without a webhook secret."""
        return (await self.webhook_keys.read(forge_id)).read(headers, body)

    async def close(self) -> None:
        await self._client.close()
        await self._locks.close()

    def _adapter_of(self, row: Forge) -> ForgeAdapter:
        # Again: the operator may have removed a host since the forge was stored.
        for url in (row.api_url, row.git_url):
            if url is not None:
                self._hosts.require(url)
        return self._adapters.make(row)

    async def _get_row(self, forge_id: str) -> Forge:
        row = await self.find_row(forge_id)
        if row is None:
            raise ForgeNotFound(forge_id)
        return row

    def _describe(self, definition: ForgeDefinition) -> dict[str, str | None]:
        """Complete and check what identifies the forge."""
        _require_consistent(definition)
        api_url, git_url = _DEFAULTS.get(definition.kind, (None, None))
        api_url = None if _has_no_api(definition) else definition.api_url or api_url
        git_url = definition.git_url or git_url
        assert git_url is not None
        return {
            "kind": definition.kind,
            "auth": definition.auth,
            "api_url": None if api_url is None else self._hosts.require(api_url),
            "git_url": self._hosts.require(git_url),
            "app_id": definition.app_id,
            "git_username": definition.git_username,
        }

    def _write(
        self,
        row: Forge,
        wanted: Mapping[str, str | None],
        definition: ForgeDefinition,
        *,
        is_changed: bool,
    ) -> None:
        for key, value in wanted.items():
            setattr(row, key, value)
        if is_changed:
            row.secret_sealed = row.bot_login = row.bot_id = None
        if definition.secret is not None:
            row.secret_sealed = seal_secret(self._vault, row.id, definition.secret)
        if definition.auth is not ForgeAuth.NONE and row.secret_sealed is None:
            raise InvalidRequest(
                "The secret is missing: a stored secret is not sent to another address or used for another account."
            )
        if definition.webhook_secret is not None:
            row.webhook_secret_sealed = seal_webhook_secret(
                self._vault, row.id, definition.webhook_secret
            )


def _has_no_api(definition: ForgeDefinition) -> bool:
    return definition.git_only or definition.kind is ForgeKind.GIT


def _require_consistent(definition: ForgeDefinition) -> None:
    is_app = definition.auth is ForgeAuth.APP
    if is_app and (definition.kind is not ForgeKind.GITHUB or definition.git_only):
        raise InvalidRequest("Only GitHub has Apps. Use a token for other forges.")
    if is_app != (definition.app_id is not None):
        raise InvalidRequest("`app_id` and `private_key` belong together.")
    if is_app and definition.secret is not None:
        read_private_key(definition.secret.encode())
    if definition.auth is ForgeAuth.NONE and not _has_no_api(definition):
        raise InvalidRequest(
            "A token or an App is required, unless the forge is used for git only."
        )
    if definition.kind is ForgeKind.GIT and definition.git_url is None:
        raise InvalidRequest("`git_url` is required for a git server.")
    if (
        definition.kind is not ForgeKind.GIT
        and not definition.git_only
        and (definition.api_url is None) != (definition.git_url is None)
    ):
        raise InvalidRequest("Give both `api_url` and `git_url`, or neither.")
