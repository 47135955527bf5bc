from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import ApiKey, Tenant
from sandbox_server.domain.errors import KeyNotFound

_now = func.clock_timestamp()
_owned = select(ApiKey, Tenant.name).join(Tenant, Tenant.id == ApiKey.tenant_id)


@dataclass(frozen=True)
class OwnedKey:
    """A key and the name of its tenant."""

    key: ApiKey
    tenant: str


class KeyRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_valid(self, secret_hash: bytes) -> ApiKey | None:
        """Find the key whose secret has this hash, unless it is revoked."""
        return await self._session.scalar(
            select(ApiKey).where(ApiKey.hash == secret_hash, ApiKey.revoked_at.is_(None))
        )

    async def find_by_id(self, key_id: str) -> ApiKey | None:
        """Find a key by its id, unless it is revoked."""
        return await self._session.scalar(
            select(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
        )

    async def get(self, key_id: str) -> OwnedKey:
        found = await self._session.execute(_owned.where(ApiKey.id == key_id))
        row = found.one_or_none()
        if row is None:
            raise KeyNotFound(key_id)
        return OwnedKey(row[0], row[1])

    async def list_page(
        self, *, limit: int, before: str | None = None, tenant: str | None = None
    ) -> Sequence[OwnedKey]:
        """List keys, newest first, including revoked ones, starting before the id `before`."""
        query = _owned.order_by(ApiKey.id.desc()).limit(limit)
        if before is not None:
            query = query.where(ApiKey.id < before)
        if tenant is not None:
            query = query.where(Tenant.name == tenant)
        return [OwnedKey(row[0], row[1]) for row in await self._session.execute(query)]

    async def add(self, key: ApiKey) -> None:
        self._session.add(key)
        await self._session.flush()

    async def add_missing(self, key: ApiKey) -> None:
        """Add the key unless a key with the same secret exists, even a revoked one."""
        if await self._session.scalar(select(ApiKey.id).where(ApiKey.hash == key.hash)) is None:
            await self.add(key)

    async def has_any(self) -> bool:
        return await self._session.scalar(select(ApiKey.id).limit(1)) is not None

    async def update(self, key_id: str, changes: Mapping[str, Any]) -> None:
        if changes:
            await self._session.execute(update(ApiKey).where(ApiKey.id == key_id).values(**changes))

    async def record_use(self, key_id: str, *, at_most_every: timedelta) -> None:
        """Set `last_used_at`, at most once per interval."""
        long_ago = ApiKey.last_used_at < _now - at_most_every
        await self._session.execute(
            update(ApiKey)
            .where(ApiKey.id == key_id, or_(ApiKey.last_used_at.is_(None), long_ago))
            .values(last_used_at=_now)
        )

    async def revoke(self, key_id: str) -> None:
        """Revoke the key permanently; an already revoked key keeps its `revoked_at`."""
        revoked = await self._session.scalar(
            update(ApiKey)
            .where(ApiKey.id == key_id)
            .values(revoked_at=func.coalesce(ApiKey.revoked_at, _now))
            .returning(ApiKey.revoked_at)
        )
        if revoked is None:
            raise KeyNotFound(key_id)
