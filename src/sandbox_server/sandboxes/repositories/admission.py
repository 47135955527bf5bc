from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, any_, bindparam, exists, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.domain.capacity import AdmissionPath
from sandbox_server.domain.fair_share import QueuedSandbox, TenantShare
from sandbox_server.sandboxes.repositories.slots import (
    in_time,
    is_queued,
    lock_rows,
    possible_backends,
    queue_order,
    runs,
)

_tenant_ids = bindparam("tenant_ids", type_=ARRAY(Text))
_waiting = exists().where(is_queued, Sandbox.tenant_id == Tenant.id)

_LOCK_WAITING_TENANTS = lock_rows(select(Tenant.id).where(_waiting).order_by(Tenant.id))

# Every admission executes this. Built once, since building takes as long as executing.
_running = (
    select(Sandbox.tenant_id, func.count().label("count"))
    .where(Sandbox.tenant_id == any_(_tenant_ids), runs)
    .group_by(Sandbox.tenant_id)
    .subquery("running")
)
_count = func.coalesce(_running.c.count, 0)
_tenant = (
    select(Tenant.id, _count.label("running"), (Tenant.max_running - _count).label("left"))
    .outerjoin(_running, _running.c.tenant_id == Tenant.id)
    .where(Tenant.id == any_(_tenant_ids))
    .subquery("tenant")
)
_path = select(
    func.unnest(bindparam("numbers", type_=ARRAY(BigInteger))).label("number"),
    func.unnest(bindparam("backends", type_=ARRAY(Text))).label("backend"),
    func.unnest(bindparam("states", type_=ARRAY(Text))).label("state"),
).subquery("path")
_first = (
    select(Sandbox.id, Sandbox.priority, Sandbox.queued_at, possible_backends.label("backends"))
    .where(is_queued, in_time, Sandbox.tenant_id == _tenant.c.id)
    .where(Sandbox.state == _path.c.state, _path.c.backend == any_(possible_backends))
    .order_by(*queue_order)
    .limit(func.greatest(func.least(_tenant.c.left, bindparam("most", type_=BigInteger)), 0))
    .lateral("first")
)
_QUEUE = select(
    _tenant.c.id.label("tenant_id"),
    *(_tenant.c.running, _tenant.c.left, _path.c.number, _first),
    func.clock_timestamp().label("now"),
).select_from(_tenant.join(_path, true()).outerjoin(_first, true()))


@dataclass(frozen=True)
class Queue:
    """The first queued sandboxes of each admission path, and the shares of their tenants."""

    waiting: Sequence[QueuedSandbox]
    shares: Mapping[str, TenantShare]
    now: datetime


class AdmissionRepository:
    """Queries and locks of admission."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def lock_tenant(self, tenant_id: str) -> Tenant:
        rows = lock_rows(select(Tenant).where(Tenant.id == tenant_id))
        tenant: Tenant = (await self._session.scalars(rows)).one()
        return tenant

    async def lock_waiting_tenants(self) -> Sequence[str]:
        """Lock every tenant with queued sandboxes, in the order of ids."""
        return (await self._session.scalars(_LOCK_WAITING_TENANTS)).all()

    async def count_waiting(self, tenant_id: str, *, up_to: int) -> int:
        """Count a tenant's queued sandboxes, up to a limit."""
        some = select(Sandbox.id).where(is_queued, Sandbox.tenant_id == tenant_id).limit(up_to)
        counted = await self._session.execute(select(func.count()).select_from(some.subquery()))
        return counted.scalar_one()

    async def read_queue(
        self, tenant_ids: Sequence[str], admission_paths: Sequence[AdmissionPath], *, most: int
    ) -> Queue:
        """Read the first queued sandboxes of each path: per tenant as many as it may run, at most `most`."""
        parameters = {
            "tenant_ids": tenant_ids,
            "numbers": list(range(len(admission_paths))),
            "backends": [path.backend for path in admission_paths],
            "states": [path.state for path in admission_paths],
            "most": most,
        }
        return _queue((await self._session.execute(_QUEUE, parameters)).all(), admission_paths)

    async def lock_waiting(self, sandbox_ids: Collection[str]) -> Sequence[Sandbox]:
        """Lock the sandboxes that are still queued, in the order of ids."""
        still = select(Sandbox).where(is_queued, Sandbox.id.in_(sorted(sandbox_ids)))
        fresh = still.order_by(Sandbox.id).execution_options(populate_existing=True)
        return (await self._session.scalars(fresh.with_for_update())).all()


def _queue(rows: Sequence[Any], admission_paths: Sequence[AdmissionPath]) -> Queue:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if row.id is not None:
            found[row.id].append(row)
    return Queue(
        waiting=[
            _in_queue(seen, [admission_paths[row.number] for row in seen])
            for seen in found.values()
        ],
        shares={row.tenant_id: TenantShare(slots=row.running, left=row.left) for row in rows},
        now=rows[0].now,
    )


def _in_queue(seen: Sequence[Any], admission_paths: Sequence[AdmissionPath]) -> QueuedSandbox:
    row = seen[0]
    open_backends = {path.backend for path in admission_paths}
    return QueuedSandbox(
        id=row.id,
        tenant_id=row.tenant_id,
        priority=row.priority,
        queued_at=row.queued_at,
        backends=tuple(backend for backend in row.backends if backend in open_backends),
        keeps_slot=any(path.keeps_slot for path in admission_paths),
    )
