from collections.abc import Sequence

from sqlalchemy import delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Forge, ForgeBudget, ForgeToken, Repository, Tenant
from sandbox_server.domain.errors import ForgeNotFound
from sandbox_server.domain.tasks.forges import ForgeAuth


class ForgeRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get_named(self, tenant_id: str, name: str) -> Forge:
        row = await self.find_named(tenant_id, name)
        if row is None:
            raise ForgeNotFound(name)
        return row

    async def find_named(self, tenant_id: str, name: str) -> Forge | None:
        found = select(Forge).where(
            Forge.tenant_id == tenant_id, Forge.name == name, Forge.removed_at.is_(None)
        )
        return await self._session.scalar(found)

    async def find(self, forge_id: str) -> Forge | None:
        found = select(Forge).where(Forge.id == forge_id, Forge.removed_at.is_(None))
        return await self._session.scalar(found)

    async def list_page(self, tenant_id: str, *, limit: int, after: str | None) -> Sequence[Forge]:
        """List the tenant's forges, oldest first."""
        query = select(Forge).where(Forge.tenant_id == tenant_id, Forge.removed_at.is_(None))
        if after is not None:
            query = query.where(Forge.id > after)
        return (await self._session.scalars(query.order_by(Forge.id).limit(limit))).all()

    async def lock_tenant(self, tenant_id: str) -> None:
        """Block other changes of the tenant's forges until the transaction ends."""
        locked = select(Tenant.id).where(Tenant.id == tenant_id).with_for_update()
        await self._session.execute(locked)

    def add(self, row: Forge) -> None:
        self._session.add(row)

    async def is_used(self, forge_id: str) -> bool:
        used = exists().where(Repository.forge_id == forge_id, Repository.removed_at.is_(None))
        return bool(await self._session.scalar(select(used)))

    async def list_budgets(self, forge_id: str) -> Sequence[ForgeBudget]:
        query = select(ForgeBudget).where(ForgeBudget.forge_id == forge_id)
        ordered = query.order_by(ForgeBudget.account, ForgeBudget.resource)
        return (await self._session.scalars(ordered)).all()

    async def forget_credential(self, forge_id: str) -> None:
        """Remove what belongs to a credential that is replaced."""
        for table in (ForgeToken, ForgeBudget):
            await self._session.execute(delete(table).where(table.forge_id == forge_id))

    async def mark_removed(self, row: Forge) -> None:
        """Remove a forge with its secrets; the row stays for the history of its repositories."""
        await self.forget_credential(row.id)
        row.auth = ForgeAuth.NONE
        row.app_id = row.secret_sealed = row.webhook_secret_sealed = None
        row.removed_at = await self._session.scalar(select(func.clock_timestamp()))
