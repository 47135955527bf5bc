from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    FromClause,
    Subquery,
    Text,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.state import OnTimeout, State
from sandbox_server.sandboxes.repositories.slots import (
    in_time,
    is_paused,
    is_queued,
    possible_backends,
    queue_order,
    runs,
)

_now = func.statement_timestamp()
_ENOUGH = 1000  # beyond that no estimate is given
_pauses_at = case(
    (
        Sandbox.idle_timeout.is_not(None),
        func.greatest(Sandbox.last_activity_at + Sandbox.idle_timeout, Sandbox.awake_until),
    )
)
_stops_running_at = case(
    (Sandbox.state.in_([State.PAUSING, State.STOPPING]), _now),
    (Sandbox.state == State.RESUMING, _now + Sandbox.remaining),
    else_=func.least(Sandbox.expires_at, _pauses_at),
)
_is_gone_at = case(
    (Sandbox.state == State.STOPPING, _now),
    (Sandbox.state == State.PAUSED, Sandbox.retain_until),
    (Sandbox.on_timeout == OnTimeout.DELETE, Sandbox.expires_at),
)


@dataclass(frozen=True)
class QueuePosition:
    """The position of a sandbox in the order of admission."""

    ahead: int
    ahead_in_tenant: int
    tenant: str
    max_running: int
    running: int
    now: datetime

    @property
    def lacks_quota(self) -> bool:
        return self.running >= self.max_running


class QueueViewRepository:
    """The queue as the API shows it; nothing is locked, so the answer may be outdated."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_positions(
        self, sandbox_ids: Collection[str], capacities: Collection[BackendCapacity]
    ) -> Mapping[str, QueuePosition]:
        """Compute the order of admission, if one slot after the other became free.

        Each admission gives its tenant one more slot. So the n-th sandbox of a tenant compares as if
        the tenant had n more slots, which gives the order without a simulation.
        """
        line = _queue(capacities)
        mine, other = line.alias("mine"), line.alias("other")
        before = and_(
            other.c.backends.op("&&")(mine.c.backends),
            or_(other.c.nth <= other.c.left, other.c.tenant_id == mine.c.tenant_id),
            tuple_(*_order(other)) < tuple_(*_order(mine)),
        )
        ahead = select(func.count()).select_from(other).where(before).scalar_subquery()
        found = await self._session.execute(
            select(mine.c.id, ahead, mine.c.nth - 1)
            .add_columns(mine.c.name, mine.c.max_running, mine.c.max_running - mine.c.left, _now)
            .where(mine.c.id.in_(sorted(sandbox_ids)))
        )
        return {id_: QueuePosition(*position) for id_, *position in found}

    async def list_releases_at(
        self, capacities: Collection[BackendCapacity]
    ) -> Sequence[datetime | None]:
        """List when slots of the backends become free by deadlines, the earliest first."""
        names, keeping = _names(capacities)
        frees_at = case((Sandbox.backend.in_(keeping), _is_gone_at), else_=_stops_running_at)
        taken = or_(
            and_(Sandbox.backend.in_(names), runs), and_(Sandbox.backend.in_(keeping), is_paused)
        )
        return await self._list(frees_at, taken)

    async def list_releases_of(self, tenant_id: str) -> Sequence[datetime | None]:
        """List when the tenant's sandboxes stop running by deadlines, the earliest first."""
        return await self._list(_stops_running_at, and_(runs, Sandbox.tenant_id == tenant_id))

    async def _list(
        self, frees_at: ColumnElement[Any], wanted: ColumnElement[bool]
    ) -> Sequence[datetime | None]:
        earliest = select(frees_at).where(wanted).order_by(frees_at.nulls_last()).limit(_ENOUGH)
        return (await self._session.scalars(earliest)).all()


def _queue(capacities: Iterable[BackendCapacity]) -> CTE:
    """Enumerate the queued sandboxes of each tenant, with the tenant's use of slots."""
    names, keeping = _names(capacities)
    waiting = (
        select(Sandbox.id, Sandbox.tenant_id, Sandbox.priority, Sandbox.queued_at)
        .add_columns(possible_backends.label("backends"))
        .add_columns(
            func.row_number()
            .over(partition_by=Sandbox.tenant_id, order_by=queue_order)
            .label("nth")
        )
        .where(is_queued, in_time, possible_backends.op("&&")(literal(names, ARRAY(Text))))
        .cte("waiting")
    )
    has = _counted(waiting, keeping)
    running = func.coalesce(has.c.running, 0)
    return (
        select(waiting, Tenant.name, Tenant.max_running)
        .add_columns((Tenant.max_running - running).label("left"))
        .add_columns((func.coalesce(has.c.slots, 0) + waiting.c.nth).label("slots"))
        .join(Tenant, Tenant.id == waiting.c.tenant_id)
        .outerjoin(has, has.c.tenant_id == waiting.c.tenant_id)
        .cte("line")
    )


def _counted(waiting: CTE, keeping: Collection[str]) -> Subquery:
    kept = and_(Sandbox.backend.in_(keeping), is_paused)
    return (
        select(Sandbox.tenant_id, func.count().filter(runs).label("running"))
        .add_columns(func.count().label("slots"))
        .where(Sandbox.tenant_id.in_(select(waiting.c.tenant_id)), or_(runs, kept))
        .group_by(Sandbox.tenant_id)
        .subquery("counted")
    )


def _order(line: FromClause) -> Sequence[ColumnElement[Any]]:
    return (-line.c.priority, line.c.slots, line.c.queued_at, line.c.id)


def _names(capacities: Iterable[BackendCapacity]) -> tuple[list[str], list[str]]:
    """List the names of the backends, and of those where paused sandboxes keep their slots."""
    every = list(capacities)
    return [capacity.backend for capacity in every], [
        capacity.backend for capacity in every if capacity.keeps_slots
    ]
