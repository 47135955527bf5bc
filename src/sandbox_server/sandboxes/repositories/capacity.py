from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ARRAY, Select, Text, and_, any_, bindparam, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Sandbox
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.repositories.slots import (
    is_paused,
    is_queued,
    lock_rows,
    possible_backends,
    runs,
)

_Count = tuple[State, str, int]  # of a tenant's sandboxes in a state

_names = any_(bindparam("names", type_=ARRAY(Text)))
_keeping = any_(bindparam("keeping", type_=ARRAY(Text)))
_waited_for = exists().where(is_queued, Backend.name == any_(possible_backends))

_BACKENDS = select(Backend, func.clock_timestamp()).order_by(Backend.name)
_FIND = _BACKENDS.where(Backend.name == _names)
_LOCK = lock_rows(_FIND)
_LOCK_WAITED_FOR = lock_rows(_BACKENDS.where(or_(Backend.name == _names, _waited_for)))
_TAKEN = (
    select(Sandbox.backend, Sandbox.state, Sandbox.tenant_id, func.count())
    .where(or_(and_(Sandbox.backend == _names, runs), and_(Sandbox.backend == _keeping, is_paused)))
    .group_by(Sandbox.backend, Sandbox.state, Sandbox.tenant_id)
)


class CapacityRepository:
    """Capacity and use of backends."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def lock(self, backends: Collection[str]) -> Sequence[BackendCapacity]:
        """Lock the backends, in the order of names, so that no other transaction gives out their slots."""
        return await self._find(_LOCK, backends)

    async def lock_waited_for(self, backend: str) -> Sequence[BackendCapacity]:
        """Lock a backend, and every backend with queued sandboxes."""
        return await self._find(_LOCK_WAITED_FOR, [backend])

    async def find(self, backends: Collection[str]) -> Sequence[BackendCapacity]:
        """Read the capacity without a lock."""
        return await self._find(_FIND, backends)

    async def _find(
        self, wanted: Select[Backend, datetime], names: Collection[str]
    ) -> Sequence[BackendCapacity]:
        rows = (await self._session.execute(wanted, {"names": list(names)})).all()
        found = [row.name for row, _ in rows]
        keeping = [row.name for row, _ in rows if row.paused_takes_place]
        counted = await self._session.execute(_TAKEN, {"names": found, "keeping": keeping})
        taken: defaultdict[str | None, list[_Count]] = defaultdict(list)
        for name, state, tenant_id, count in counted:
            taken[name].append((state, tenant_id, count))
        return [_room(row, now, taken[row.name]) for row, now in rows]


def _room(row: Backend, now: datetime, taken: Sequence[_Count]) -> BackendCapacity:
    return BackendCapacity(
        backend=row.name,
        capacity=row.capacity,
        running=sum(count for state, _, count in taken if state is not State.PAUSED),
        kept={tenant_id: count for state, tenant_id, count in taken if state is State.PAUSED},
        keeps_slots=row.paused_takes_place,
        answers=row.state != "down",
        silent_since=row.failing_since,
        drained=row.drained,
        busy_until=row.busy_until if row.busy_until and row.busy_until > now else None,
    )
