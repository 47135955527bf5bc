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
    """A request for a key; without a tenant, the key belongs to the caller's tenant."""

    tenant: str | None = None
    name: str = ""
    scopes: Collection[Scope] = (Scope.SANDBOXES,)
    max_priority: int = 0
    rate_per_s: float | None = None


@dataclass(frozen=True)
class IssuedKey:
    """A new key with its secret, which is not stored and cannot be shown again."""

    owned: OwnedKey
    secret: str = field(repr=False)


class ApiKeys:
    """Creates, lists, updates and revokes the API keys of all tenants."""

    def __init__(self, sessions: Sessions, authenticator: Authenticator) -> None:
        self._sessions = sessions
        self._authenticator = authenticator

    async def issue(
        self,
        request: KeyRequest,
        *,
        caller: Caller | None = None,
        idempotency: Idempotency | None = None,
    ) -> IssuedKey:
        """Create a key; a repeated request raises, since the first secret cannot be shown again."""
        secret, key_id = new_secret(), ApiKeyId(new_id())
        async with self._sessions.begin() as session:
            if caller is not None and idempotency is not None:
                created_id = await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource=_RESOURCE, resource_id=key_id
                )
                if created_id != key_id:
                    raise KeyIssuedBefore(created_id)
            tenant = await _find_tenant(session, request, caller)
            key = _row(request, key_id=key_id, tenant_id=tenant.id, secret=secret)
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
        """Change a key's permissions; takes effect here at once, on other servers within half a second."""
        async with self._sessions.begin() as session:
            repository = KeyRepository(session)
            await repository.update(key_id, changes)
            updated = await repository.get(key_id)
        self._authenticator.clear_cache()
        return updated

    async def revoke(self, key_id: str) -> None:
        """Revoke a key permanently; takes effect here at once, on other servers within half a second."""
        async with self._sessions.begin() as session:
            await KeyRepository(session).revoke(key_id)
        self._authenticator.clear_cache()


async def _find_tenant(session: AsyncSession, request: KeyRequest, caller: Caller | None) -> Tenant:
    if request.tenant is None and caller is not None:
        return await session.get_one(Tenant, caller.tenant_id)
    return await TenantRepository(session).get_named(request.tenant or DEFAULT_TENANT)


def _row(request: KeyRequest, *, key_id: str, tenant_id: str, secret: str) -> ApiKey:
    return ApiKey(
        id=key_id,
        tenant_id=tenant_id,
        name=request.name,
        hash=hash_of(secret),
        prefix=prefix_of(secret),
        scopes=sorted(request.scopes),
        max_priority=request.max_priority,
        rate_per_s=request.rate_per_s,
    )
