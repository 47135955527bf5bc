from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Select,
    Subquery,
    Text,
    and_,
    any_,
    case,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Sandbox, Tenant
from sandbox_server.domain.rooms import Door, Room
from sandbox_server.domain.state import State
from sandbox_server.domain.turns import Waiting

HELD = (State.STARTING, State.RUNNING, State.PAUSING, State.RESUMING, State.STOPPING)

# As constants: a plan for whatever parameters could not use an index that has some rows only.
waits = and_(
    Sandbox.target == literal_column("'running'"),
    Sandbox.state.in_([literal_column("'queued'"), literal_column("'paused'")]),
)
in_time = or_(
    Sandbox.queue_expires_at.is_(None), Sandbox.queue_expires_at > func.statement_timestamp()
)
may_be_at = case(
    (Sandbox.state == State.QUEUED, Sandbox.candidates), else_=array([Sandbox.backend])
)
Selected = TypeVar("Selected", bound=Select[*tuple[Any, ...]])
_Count = tuple[State, str, int]  # of a tenant's sandboxes in a state


class AdmissionRepository:
    """What has to be held and known to give out places."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def lock_backends(self, names: Collection[str]) -> None:
        """Hold these backends, by name, without a look at them."""
        await self._session.execute(_held(_backends(Backend.name.in_(sorted(names)))))

    async def lock_rooms(self, backends: Collection[str]) -> Sequence[Room]:
        """Hold these backends, by name, so that nobody else gives out their places."""
        return await self._find_rooms(_held(_backends(Backend.name.in_(sorted(backends)))))

    async def lock_rooms_waited_for(self, backend: str) -> Sequence[Room]:
        """Hold this backend and all that anybody waits for."""
        waited_for = exists().where(waits, Backend.name == any_(may_be_at))
        return await self._find_rooms(_held(_backends(or_(Backend.name == backend, waited_for))))

    async def find_rooms(self, backends: Collection[str]) -> Sequence[Room]:
        """Tell how full these backends are at this moment."""
        return await self._find_rooms(_backends(Backend.name.in_(sorted(backends))))

    async def lock_tenant(self, tenant_id: str) -> Tenant:
        [tenant] = await self._lock_tenants(Tenant.id == tenant_id)
        return tenant

    async def lock_waiting_tenants(self) -> Sequence[Tenant]:
        """Hold, by id, every tenant that waits for a place anywhere."""
        waiting = exists().where(waits, Sandbox.tenant_id == Tenant.id)
        return await self._lock_tenants(waiting)

    async def count_running(self, tenant_ids: Collection[str]) -> Mapping[str, int]:
        """Count what the tenants run, wherever that is."""
        counted = await self._session.execute(
            select(Sandbox.tenant_id, func.count())
            .where(Sandbox.tenant_id.in_(sorted(tenant_ids)), Sandbox.state.in_(HELD))
            .where(Sandbox.ended_at.is_(None))
            .group_by(Sandbox.tenant_id)
        )
        return dict.fromkeys(tenant_ids, 0) | dict(counted.all())

    async def count_waiting(self, tenant_id: str, *, up_to: int) -> int:
        """Count those of a tenant that wait, no further than that."""
        some = select(Sandbox.id).where(waits, Sandbox.tenant_id == tenant_id).limit(up_to)
        counted = await self._session.execute(select(func.count()).select_from(some.subquery()))
        return counted.scalar_one()

    async def list_waiting(
        self, doors: Sequence[Door], *, most: Mapping[str, int]
    ) -> Sequence[Waiting]:
        """List who is first at each door, so many of each tenant at the most."""
        tenant = _table(id=(Text, list(most)), most=(BigInteger, list(most.values())))
        door = _table(
            number=(BigInteger, list(range(len(doors)))),
            backend=(Text, [door.backend for door in doors]),
            state=(Text, [door.state for door in doors]),
        )
        first = (
            select(Sandbox.id, Sandbox.tenant_id, Sandbox.priority, Sandbox.queued_at)
            .add_columns(may_be_at.label("backends"))
            .where(waits, in_time, Sandbox.tenant_id == tenant.c.id)
            .where(Sandbox.state == door.c.state, door.c.backend == any_(may_be_at))
            .order_by(Sandbox.priority.desc(), Sandbox.queued_at, Sandbox.id)
            .limit(tenant.c.most)
            .lateral("first")
        )
        everyone = tenant.join(door, true()).join(first, true())
        found = await self._session.execute(select(door.c.number, first).select_from(everyone))
        seen: defaultdict[str, list[Any]] = defaultdict(list)
        for row in found:
            seen[row.id].append(row)
        return [_waiting(rows[0], [doors[row.number] for row in rows]) for rows in seen.values()]

    async def lock_waiting(
        self, sandbox_ids: Collection[str]
    ) -> Sequence[tuple[Sandbox, datetime]]:
        """Hold, by id, those of the sandboxes that still wait; gives them with the database's clock."""
        still = select(Sandbox, func.clock_timestamp()).where(
            waits, Sandbox.id.in_(sorted(sandbox_ids))
        )
        fresh = still.order_by(Sandbox.id).execution_options(populate_existing=True)
        locked = await self._session.execute(fresh.with_for_update(of=Sandbox))
        return [(row, now) for row, now in locked]

    async def _lock_tenants(self, wanted: ColumnElement[bool]) -> Sequence[Tenant]:
        rows = select(Tenant).where(wanted).order_by(Tenant.id)
        return (await self._session.scalars(_held(rows))).all()

    async def _find_rooms(self, backends: Select[Backend, datetime]) -> Sequence[Room]:
        rows = (await self._session.execute(backends)).all()
        names = [row.name for row, _ in rows]
        keeping = [row.name for row, _ in rows if row.paused_takes_place]
        counted = await self._session.execute(
            select(Sandbox.backend, Sandbox.state, Sandbox.tenant_id, func.count())
            .where(takes_place(names, keeping=keeping))
            .group_by(Sandbox.backend, Sandbox.state, Sandbox.tenant_id)
        )
        taken: defaultdict[str | None, list[_Count]] = defaultdict(list)
        for name, state, tenant_id, count in counted:
            taken[name].append((state, tenant_id, count))
        return [_room(row, now, taken[row.name]) for row, now in rows]


def takes_place(backends: Collection[str], *, keeping: Collection[str]) -> ColumnElement[bool]:
    """Tell whether a sandbox takes a place at one of the backends, some of which keep those of paused ones."""
    held = and_(Sandbox.backend.in_(backends), Sandbox.state.in_(HELD))
    if keeping:
        held = or_(held, and_(Sandbox.backend.in_(keeping), Sandbox.state == State.PAUSED))
    return and_(Sandbox.ended_at.is_(None), held)


def _backends(wanted: ColumnElement[bool]) -> Select[Backend, datetime]:
    return select(Backend, func.clock_timestamp()).where(wanted).order_by(Backend.name)


def _held(rows: Selected) -> Selected:
    # Others may still refer to the rows: two who have inserted a sandbox would wait for each other.
    return rows.with_for_update(key_share=True).execution_options(populate_existing=True)


def _room(row: Backend, now: datetime, taken: Sequence[_Count]) -> Room:
    return Room(
        backend=row.name,
        capacity=row.capacity,
        running=sum(count for state, _, count in taken if state is not State.PAUSED),
        kept={tenant_id: count for state, tenant_id, count in taken if state is State.PAUSED},
        keeps_places=row.paused_takes_place,
        answers=row.state != "down",
        silent_since=row.failing_since,
        drained=row.drained,
        busy_until=row.busy_until if row.busy_until and row.busy_until > now else None,
    )


def _waiting(row: Any, doors: Sequence[Door]) -> Waiting:
    open_there = {door.backend for door in doors}
    return Waiting(
        id=row.id,
        tenant_id=row.tenant_id,
        priority=row.priority,
        queued_at=row.queued_at,
        backends=tuple(backend for backend in row.backends if backend in open_there),
        has_place=any(door.has_place for door in doors),
    )


def _table(**columns: tuple[Any, Sequence[Any]]) -> Subquery:
    """Give values to a query as the columns of a table."""
    return select(
        *(
            func.unnest(literal(values, ARRAY(kind))).label(name)
            for name, (kind, values) in columns.items()
        )
    ).subquery()
