from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import IdempotencyKey
from sandbox_server.domain.errors import IdempotencyMismatch
from sandbox_server.domain.requests import Idempotency


class IdempotencyRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def claim(
        self, tenant_id: str, request: Idempotency | None, *, resource: str, resource_id: str
    ) -> str:
        """Return the id of the resource that the request created before, or `resource_id` for a new one.

        Waits for a concurrent transaction with the same key. Call it before taking other locks.
        """
        if request is None:
            return resource_id
        claimed = await self._session.scalar(
            insert(IdempotencyKey)
            .values(
                tenant_id=tenant_id,
                key=request.key,
                digest=request.digest,
                resource=resource,
                resource_id=resource_id,
            )
            .on_conflict_do_nothing()
            .returning(IdempotencyKey.resource_id)
        )
        return claimed or await self._made_before(tenant_id, request)

    async def find(self, tenant_id: str, request: Idempotency | None) -> str | None:
        """Find the resource that the request created before."""
        if request is None:
            return None
        earlier = await self._session.get(IdempotencyKey, (tenant_id, request.key))
        return None if earlier is None else _of_same(earlier, request)

    async def _made_before(self, tenant_id: str, request: Idempotency) -> str:
        earlier = await self._session.get_one(IdempotencyKey, (tenant_id, request.key))
        return _of_same(earlier, request)


def _of_same(earlier: IdempotencyKey, request: Idempotency) -> str:
    if earlier.digest != request.digest:
        raise IdempotencyMismatch(request.key)
    return earlier.resource_id
