from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend
from sandbox_server.domain.errors import BackendNotFound

_now = func.clock_timestamp()


class BackendRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, name: str) -> Backend:
        row = await self._session.get(Backend, name)
        if row is None:
            raise BackendNotFound(name)
        return row

    async def list_all(self) -> Sequence[Backend]:
        return (await self._session.scalars(select(Backend).order_by(Backend.name))).all()

    async def register(self, name: str, *, capacity: int, paused_takes_place: bool) -> None:
        """Store the settings of a backend; other columns stay."""
        values = {"capacity": capacity, "paused_takes_place": paused_takes_place}
        upsert = insert(Backend).values(name=name, **values)
        await self._session.execute(
            upsert.on_conflict_do_update(index_elements=[Backend.name], set_=values)
        )

    async def retire_except(self, names: Collection[str], *, reason: str) -> None:
        """Mark removed backends as down; their sandboxes keep their rows."""
        left = Backend.name.not_in(sorted(names))
        await self._session.execute(
            update(Backend).where(left).values(state="down", state_reason=reason)
        )

    async def set_drained(self, name: str, drained: bool) -> Backend:  # noqa: FBT001 - what it becomes
        """Stop or resume the admission of new sandboxes; existing ones stay."""
        changed = update(Backend).where(Backend.name == name).values(drained=drained)
        row: Backend | None = await self._session.scalar(changed.returning(Backend))
        if row is None:
            raise BackendNotFound(name)
        return row

    async def answered(self, name: str) -> bool:
        """Record an answer of the backend; returns whether it was not up before."""
        before = await self._session.scalar(
            select(Backend.state).where(Backend.name == name).with_for_update()
        )
        await self._session.execute(
            update(Backend)
            .where(Backend.name == name)
            .values(state="up", state_reason=None, seen_at=_now, failing_since=None)
        )
        return before != "up"

    async def count_orphans(self, name: str, count: int) -> None:
        """Store the number of orphans at a backend."""
        await self._session.execute(
            update(Backend).where(Backend.name == name).values(strangers=count)
        )

    async def failed(self, name: str, *, reason: str, down_after: timedelta) -> bool:
        """Record a failure of the backend; returns whether it counts as down.

        It does after failing repeatedly for `down_after`.
        """
        since = func.coalesce(Backend.failing_since, _now)
        down = or_(Backend.state == "down", since <= _now - down_after)
        state = await self._session.scalar(
            update(Backend)
            .where(Backend.name == name)
            .values(
                failing_since=since,
                state=case((down, "down"), else_=Backend.state),
                state_reason=case((down, reason), else_=Backend.state_reason),
            )
            .returning(Backend.state)
        )
        return state == "down"

    async def hold_back(self, name: str, *, until: datetime) -> None:
        """Admit nothing until then: the provider reported no room."""
        await self._session.execute(
            update(Backend)
            .where(Backend.name == name)
            .values(busy_until=func.greatest(Backend.busy_until, until))
        )
