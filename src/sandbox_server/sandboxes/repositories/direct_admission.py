"""Statements for sandboxes that get a slot in the transaction that inserts them; built once, since every create runs them."""

from datetime import datetime, timedelta

from sqlalchemy import Text, bindparam, exists, func, insert, inspect, not_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import TABLES, Sandbox, Tenant
from sandbox_server.sandboxes.repositories.slots import is_queued, lock_rows, runs

_SANDBOXES = TABLES["sandboxes"]
_COLUMNS = {
    attribute.key: attribute.columns[0] for attribute in inspect(Sandbox).mapper.column_attrs
}

_tenant_id = bindparam("tenant_id", type_=Text)
_running = select(func.count()).where(Sandbox.tenant_id == _tenant_id, runs).scalar_subquery()
_may_run = select(Tenant.max_running).where(Tenant.id == _tenant_id).scalar_subquery()
_quota_free = not_(exists().where(is_queued)) & (_may_run > _running)

_FIND_TENANT = select(Tenant, _quota_free, func.clock_timestamp()).where(Tenant.id == _tenant_id)
_LOCK_TENANT = lock_rows(select(Tenant.id).where(Tenant.id == _tenant_id))
_INSERT = (
    insert(_SANDBOXES)
    .from_select(
        [column.name for column in _COLUMNS.values()],
        select(*(bindparam(name, type_=column.type) for name, column in _COLUMNS.items())).where(
            _quota_free
        ),
    )
    .returning(_SANDBOXES.c.id)
)


class DirectAdmissionRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_tenant(self, tenant_id: str) -> tuple[Tenant, bool, datetime]:
        """Find a tenant, whether it may run more and nothing is queued, and the database's clock.

        Nothing is locked, so the answer may be outdated when it is used.
        """
        found = await self._session.execute(_FIND_TENANT, {"tenant_id": tenant_id})
        tenant, quota_free, now = found.one()
        return tenant, quota_free, now

    async def add(self, row: Sandbox) -> bool:
        """Insert the row, whose backend is locked, if its tenant may run more and nothing is queued."""
        await self._session.execute(_LOCK_TENANT, {"tenant_id": row.tenant_id})
        values = {name: getattr(row, name) for name in _COLUMNS}
        added = await self._session.execute(_INSERT, values)
        return added.one_or_none() is not None


def set_defaults(row: Sandbox, now: datetime, *, queue_timeout: timedelta | None) -> None:
    """Set the columns that have defaults in the database."""
    row.created_at = row.queued_at = now
    row.wanted, row.generation = 1, 0
    row.has_services = row.has_services or False
    row.capabilities = row.capabilities or []
    row.awaited_backends = row.awaited_backends or []
    row.queue_expires_at = None if queue_timeout is None else now + queue_timeout
