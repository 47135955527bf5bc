from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import ApiKey
from sandbox_server.domain.errors import KeyNotFound

_now = func.clock_timestamp()


class KeyRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_valid(self, secret_hash: bytes) -> ApiKey | None:
        """Find the key whose secret has this hash, unless it is revoked."""
        return await self._session.scalar(
            select(ApiKey).where(ApiKey.hash == secret_hash, ApiKey.revoked_at.is_(None))
        )

    async def get(self, key_id: str) -> ApiKey:
        key = await self._session.get(ApiKey, key_id)
        if key is None:
            raise KeyNotFound(key_id)
        return key

    async def list_page(
        self, *, limit: int, before: str | None = None, tenant_id: str | None = None
    ) -> Sequence[ApiKey]:
        """List newest first, from the one before the id `before`; revoked ones too."""
        query = select(ApiKey).order_by(ApiKey.id.desc()).limit(limit)
        if before is not None:
            query = query.where(ApiKey.id < before)
        if tenant_id is not None:
            query = query.where(ApiKey.tenant_id == tenant_id)
        return (await self._session.scalars(query)).all()

    async def add(self, key: ApiKey) -> None:
        self._session.add(key)
        await self._session.flush()

    async def note_use(self, key_id: str, *, at_most_every: timedelta) -> None:
        """Note that the key is used, unless that was noted lately."""
        long_ago = ApiKey.last_used_at < _now - at_most_every
        await self._session.execute(
            update(ApiKey)
            .where(ApiKey.id == key_id, or_(ApiKey.last_used_at.is_(None), long_ago))
            .values(last_used_at=_now)
        )

    async def revoke(self, key_id: str) -> None:
        """End the key for good; one that was revoked before stays so since then."""
        revoked: datetime | None = await self._session.scalar(
            update(ApiKey)
            .where(ApiKey.id == key_id)
            .values(revoked_at=func.coalesce(ApiKey.revoked_at, _now))
            .returning(ApiKey.revoked_at)
        )
        if revoked is None:
            raise KeyNotFound(key_id)
