from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.key_repository import KeyRepository, OwnedKey
from sandbox_server.access.secrets import hash_of, new_secret, prefix_of
from sandbox_server.access.tenant_repository import TenantRepository
from sandbox_server.access.tenants import DEFAULT_TENANT
from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import ApiKey, Tenant
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.errors import KeyIssuedBefore
from sandbox_server.domain.ids import ApiKeyId, new_id
from sandbox_server.domain.requests import Idempotency

_RESOURCE = "key"


@dataclass(frozen=True, kw_only=True)
class KeyRequest:
    """A key as somebody wants it, for a tenant by name or, if none is named, for the caller's own."""

    tenant: str | None = None
    name: str = ""
    scopes: Collection[Scope] = (Scope.SANDBOXES,)
    max_priority: int = 0
    rate_per_s: float | None = None


@dataclass(frozen=True)
class IssuedKey:
    """A new key with its secret, which nobody can tell again."""

    owned: OwnedKey
    secret: str = field(repr=False)


class ApiKeys:
    """All keys of all tenants: made, listed, changed, revoked."""

    def __init__(self, sessions: Sessions, authenticator: Authenticator) -> None:
        self._sessions = sessions
        self._authenticator = authenticator

    async def issue(
        self,
        wanted: KeyRequest,
        *,
        caller: Caller | None = None,
        idempotency: Idempotency | None = None,
    ) -> IssuedKey:
        """Make a key; a repeated request makes none, and cannot be told the first one's secret again."""
        secret, key_id = new_secret(), ApiKeyId(new_id())
        async with self._sessions.begin() as session:
            if caller is not None and idempotency is not None:
                made = await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource=_RESOURCE, resource_id=key_id
                )
                if made != key_id:
                    raise KeyIssuedBefore(made)
            tenant = await _find_tenant(session, wanted, caller)
            key = _row(wanted, key_id=key_id, tenant_id=tenant.id, secret=secret)
            await KeyRepository(session).add(key)
        return IssuedKey(OwnedKey(key, tenant.name), secret)

    async def get(self, key_id: str) -> OwnedKey:
        async with without_transaction(self._sessions) as session:
            return await KeyRepository(session).get(key_id)

    async def list_page(
        self, *, limit: int, before: str | None = None, tenant: str | None = None
    ) -> Sequence[OwnedKey]:
        async with without_transaction(self._sessions) as session:
            return await KeyRepository(session).list_page(limit=limit, before=before, tenant=tenant)

    async def update(self, key_id: str, changes: Mapping[str, Any]) -> OwnedKey:
        """Change what a key may do; known everywhere within half a second, here at once."""
        async with self._sessions.begin() as session:
            repository = KeyRepository(session)
            await repository.update(key_id, changes)
            changed = await repository.get(key_id)
        self._authenticator.forget()
        return changed

    async def revoke(self, key_id: str) -> None:
        """End a key for good; known everywhere within half a second, here at once."""
        async with self._sessions.begin() as session:
            await KeyRepository(session).revoke(key_id)
        self._authenticator.forget()


async def _find_tenant(session: AsyncSession, wanted: KeyRequest, caller: Caller | None) -> Tenant:
    if wanted.tenant is None and caller is not None:
        return await session.get_one(Tenant, caller.tenant_id)
    return await TenantRepository(session).get_named(wanted.tenant or DEFAULT_TENANT)


def _row(wanted: KeyRequest, *, key_id: str, tenant_id: str, secret: str) -> ApiKey:
    return ApiKey(
        id=key_id,
        tenant_id=tenant_id,
        name=wanted.name,
        hash=hash_of(secret),
        prefix=prefix_of(secret),
        scopes=sorted(wanted.scopes),
        max_priority=wanted.max_priority,
        rate_per_s=wanted.rate_per_s,
    )
