from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, literal_column, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Tenant
from sandbox_server.domain.errors import TenantNotFound
from sandbox_server.domain.ids import new_id


class TenantRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get_named(self, name: str) -> Tenant:
        tenant = await self._session.scalar(select(Tenant).where(Tenant.name == name))
        if tenant is None:
            raise TenantNotFound(name)
        return tenant

    async def get(self, tenant_id: str) -> Tenant:
        return await self._session.get_one(Tenant, tenant_id)

    async def lock(self, tenant_id: str) -> Tenant:
        """Lock the tenant until the transaction ends."""
        locked = select(Tenant).where(Tenant.id == tenant_id).with_for_update()
        found = await self._session.scalars(locked.execution_options(populate_existing=True))
        return found.one()

    async def list_page(self, *, limit: int, after: str | None = None) -> Sequence[Tenant]:
        """List tenants, oldest first, starting after the id `after`."""
        query = select(Tenant).order_by(Tenant.id).limit(limit)
        if after is not None:
            query = query.where(Tenant.id > after)
        return (await self._session.scalars(query)).all()

    async def add_missing(self, name: str, **fields: Any) -> None:
        """Create a tenant of this name unless it exists."""
        added = insert(Tenant).values(id=new_id(), name=name, **fields)
        await self._session.execute(added.on_conflict_do_nothing(index_elements=[Tenant.name]))

    async def put(self, name: str, **fields: Any) -> tuple[Tenant, bool]:
        """Create or replace the tenant of this name; returns it and whether it is new."""
        upsert = insert(Tenant).values(id=new_id(), name=name, **fields)
        upsert = upsert.on_conflict_do_update(index_elements=[Tenant.name], set_=fields)
        # `xmax` is 0 only in a row version that was inserted, not updated or locked.
        is_new: ColumnElement[bool] = literal_column("(xmax = 0)")
        row = (await self._session.execute(upsert.returning(Tenant, is_new))).one()
        return row[0], row[1]
